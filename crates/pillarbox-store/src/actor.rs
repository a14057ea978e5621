//! Who acts on an outbox, how far the actor reaches, and what it may do.
//!
//! An actor is built where its identity was verified: by the command line for the user of the operating system, by a server
//! for a checked token. It has no default, and no part of it is a list in which "empty" could mean "everything".

use std::collections::BTreeSet;

use uuid::Uuid;

use crate::store::StoreError;

/// What acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An operator, by a command or a console.
    Operator,
    /// A program, such as an API or a migration at the start of an application.
    Service,
    /// A worker of the dispatcher.
    Worker,
}

impl Kind {
    /// Its name in the audit.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Service => "service",
            Self::Worker => "worker",
        }
    }
}

/// Which rows an actor sees and changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// All of them, and what belongs to no tenant: workers, pauses, sagas, adopted tables.
    System,
    /// The rows of one tenant. Another tenant's row is answered like one that does not exist.
    Tenant(Uuid),
}

/// What an actor may do within its reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permission {
    /// List and count, without content.
    Read,
    /// See content: payloads, headers, error texts and the data of sagas.
    Content,
    /// Retry, skip, pause, resume, and send requests to sagas.
    Write,
    /// Delete.
    Delete,
    /// Read the audit.
    Audit,
}

impl Permission {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Read, Self::Content, Self::Write, Self::Delete, Self::Audit];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Content => "content",
            Self::Write => "write",
            Self::Delete => "delete",
            Self::Audit => "audit",
        }
    }
}

/// Who acts. Every call of [`Operate`](crate::Operate) takes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    pub(crate) subject: String,
    pub(crate) kind: Kind,
    pub(crate) reach: Reach,
    permissions: BTreeSet<Permission>,
    pub(crate) reason: Option<String>,
}

impl Actor {
    /// An actor with exactly these permissions. The subject is its name in the audit.
    pub fn new(
        kind: Kind,
        subject: impl Into<String>,
        reach: Reach,
        permissions: impl IntoIterator<Item = Permission>,
    ) -> Self {
        Self {
            subject: subject.into(),
            kind,
            reach,
            permissions: permissions.into_iter().collect(),
            reason: None,
        }
    }

    /// Says why, for the audit.
    #[must_use]
    pub fn because(self, reason: impl Into<String>) -> Self {
        Self {
            reason: Some(reason.into()),
            ..self
        }
    }

    /// Has it this permission?
    pub fn has(&self, permission: Permission) -> bool {
        self.permissions.contains(&permission)
    }

    /// Which rows it sees and changes.
    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// The tenant, or `None` for all rows.
    pub(crate) fn tenant(&self) -> Option<Uuid> {
        match self.reach {
            Reach::System => None,
            Reach::Tenant(tenant) => Some(tenant),
        }
    }

    /// Does it reach a row of this tenant, or of none?
    pub(crate) fn reaches(&self, tenant: Option<Uuid>) -> bool {
        match self.reach {
            Reach::System => true,
            Reach::Tenant(own) => tenant == Some(own),
        }
    }

    /// Fails without this permission.
    ///
    /// The nil UUID is no tenant. It is what an id is that was never set, and fair shares use it for events without a tenant.
    pub(crate) fn may(&self, permission: Permission) -> Result<(), Forbidden> {
        if !self.has(permission) {
            return Err(self.forbidden(Missing::Permission(permission)));
        }
        match self.reach {
            Reach::Tenant(tenant) if tenant.is_nil() => Err(self.forbidden(Missing::Tenant)),
            Reach::Tenant(_) | Reach::System => Ok(()),
        }
    }

    /// Fails without this permission, or if the actor reaches one tenant only: for what all tenants share.
    pub(crate) fn may_in_system(&self, permission: Permission) -> Result<(), Forbidden> {
        self.may(permission)?;
        match self.reach {
            Reach::System => Ok(()),
            Reach::Tenant(_) => Err(self.forbidden(Missing::SystemReach)),
        }
    }

    fn forbidden(&self, missing: Missing) -> Forbidden {
        Forbidden {
            subject: self.subject.clone(),
            missing,
        }
    }
}

/// What an actor lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// A permission.
    Permission(Permission),
    /// The reach beyond one tenant.
    SystemReach,
    /// A tenant: the actor's is the nil UUID.
    Tenant,
}

/// The actor may not do this. Nothing was read or changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not allowed: {subject} {} (ask an operator of this outbox)", match .missing {
    Missing::Permission(permission) => format!("lacks the permission `{}`", permission.as_str()),
    Missing::SystemReach => "acts for one tenant, and this belongs to all of them".to_owned(),
    Missing::Tenant => "acts for the nil UUID, which is no tenant".to_owned(),
})]
pub struct Forbidden {
    /// Who asked.
    pub subject: String,
    /// What is missing.
    pub missing: Missing,
}

/// Why an operation failed. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum OperateError {
    /// The actor may not do this.
    #[error(transparent)]
    Forbidden(#[from] Forbidden),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_actor_of_a_tenant_reaches_neither_others_nor_what_belongs_to_none() {
        let own = Uuid::from_u128(1);
        let actor = Actor::new(Kind::Service, "api", Reach::Tenant(own), Permission::ALL);
        assert!(actor.reaches(Some(own)));
        assert!(!actor.reaches(Some(Uuid::from_u128(2))) && !actor.reaches(None));
        let refused = actor.may_in_system(Permission::Write).unwrap_err();
        assert_eq!(refused.missing, Missing::SystemReach);
        assert!(actor.may(Permission::Write).is_ok());
    }

    #[test]
    fn the_nil_uuid_is_no_tenant() {
        let actor = Actor::new(Kind::Service, "api", Reach::Tenant(Uuid::nil()), Permission::ALL);
        for permission in Permission::ALL {
            let refused = actor.may(permission).unwrap_err();
            assert_eq!(refused.missing, Missing::Tenant);
        }
    }

    #[test]
    fn without_a_permission_the_error_names_it() {
        let actor = Actor::new(Kind::Operator, "alice", Reach::System, []);
        let refused = actor.may(Permission::Delete).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "not allowed: alice lacks the permission `delete` (ask an operator of this outbox)"
        );
    }
}
