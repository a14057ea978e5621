//! Quotas: how many pending events a role or a tenant may have. PostgreSQL only.
//!
//! A worker counts, and enqueue reads the last count. So a quota is a soft bound, and costs a producer no lock.

use std::fmt;

use serde::Serialize;
use uuid::Uuid;

/// The largest quota: a count reads so many rows.
pub const MAX_PENDING: u64 = 1_000_000;

/// Whom a quota concerns.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// A database role and its members.
    Role(String),
    /// Each tenant without a quota of its own.
    EachTenant,
    /// A tenant.
    Tenant(Uuid),
}

impl Holder {
    /// Its kind, in the table.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Role(_) => "role",
            Self::EachTenant | Self::Tenant(_) => "tenant",
        }
    }

    /// Its name, in the table.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Role(name) => name.clone(),
            Self::EachTenant => String::new(),
            Self::Tenant(id) => id.to_string(),
        }
    }

    /// The holder with this name in the table.
    #[cfg(feature = "postgres")]
    pub(crate) fn named(kind: &str, name: String) -> Self {
        match (kind, Uuid::parse_str(&name)) {
            ("tenant", Ok(id)) => Self::Tenant(id),
            ("tenant", Err(_)) => Self::EachTenant,
            _ => Self::Role(name),
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Role(name) => write!(f, "role {name}"),
            Self::EachTenant => f.write_str("each tenant"),
            Self::Tenant(id) => write!(f, "tenant {id}"),
        }
    }
}

/// A quota, and what counts against it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QuotaRecord {
    /// `role` or `tenant`.
    pub kind: String,
    /// The role or the tenant's id; `None` for each tenant.
    pub name: Option<String>,
    /// How many pending events it may have.
    pub max_pending: u64,
    /// How many it has; stops at one more than the quota. `None` for each tenant.
    pub pending: Option<u64>,
    /// Are its events rejected, since a worker counted too many?
    pub exceeded: bool,
    /// Does the quota belong to this tenant alone? Otherwise it is that of each tenant.
    pub own: bool,
}

/// What a count found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counted {
    /// Who comes next, if not all were counted: the next count goes on after this one.
    pub after: Option<Holder>,
    /// Who has gone over its quota, and the quota.
    pub exceeded: Vec<(Holder, u64)>,
    /// Who is no longer over its quota.
    pub within: Vec<(Holder, u64)>,
}
