//! What a role was granted: its duties, and its bounds and permissions before and after a change.

use sqlx::{AssertSqlSafe, Row};

use super::check::permissions_of;
use super::{Bounds, Duty, quoted};
use crate::store::StoreError;
use crate::stores::postgres::{Transaction, store_error};

/// Two of them differ if a statement in between granted or revoked something.
#[derive(Debug, PartialEq)]
pub(super) struct Granted {
    /// The bounds of one duty; `None` without this duty.
    pub(super) bounds: Option<Bounds>,
    permissions: Vec<String>,
}

/// What a role has now. A role that does not exist has nothing.
pub(super) async fn granted(
    transaction: &mut Transaction,
    schema: &str,
    role: &str,
    duty: Duty,
) -> Result<Granted, StoreError> {
    let text = format!(
        "select namespaces, tenants, destinations, names from \"{schema}\".role_bounds
         where role = to_regrole($1) and duty = $2"
    );
    let row = sqlx::query(AssertSqlSafe(text))
        .bind(quoted(role)?)
        .bind(duty.name())
        .persistent(false)
        .fetch_optional(&mut **transaction)
        .await
        .map_err(store_error)?;
    let bounds = row.map(|row| {
        Ok(Bounds {
            namespaces: row.try_get("namespaces")?,
            tenants: row.try_get("tenants")?,
            destinations: row.try_get("destinations")?,
            names: row.try_get("names")?,
        })
    });
    Ok(Granted {
        bounds: bounds.transpose().map_err(store_error)?,
        permissions: permissions_of(transaction, schema, role).await?,
    })
}

/// The duties that the role was granted.
pub(super) async fn duties(
    transaction: &mut Transaction,
    schema: &str,
    role: &str,
) -> Result<Vec<Duty>, StoreError> {
    let text = format!("select duty from \"{schema}\".role_bounds where role = to_regrole($1)");
    let names: Vec<String> = sqlx::query_scalar(AssertSqlSafe(text))
        .bind(quoted(role)?)
        .persistent(false)
        .fetch_all(&mut **transaction)
        .await
        .map_err(store_error)?;
    let is_granted = |duty: &Duty| names.iter().any(|name| name == duty.name());
    Ok(Duty::ALL.into_iter().filter(is_granted).collect())
}

/// Fails if the role does not exist. `otherwise` says what to do.
pub(super) async fn check_exists(
    transaction: &mut Transaction,
    role: &str,
    otherwise: &str,
) -> Result<(), StoreError> {
    if exists(transaction, role).await? {
        return Ok(());
    }
    Err(StoreError::Invalid(format!(
        "role {role:?} does not exist{otherwise}"
    )))
}

pub(super) async fn exists(transaction: &mut Transaction, role: &str) -> Result<bool, StoreError> {
    sqlx::query_scalar("select exists (select from pg_roles where rolname = $1)")
        .bind(role)
        .persistent(false)
        .fetch_one(&mut **transaction)
        .await
        .map_err(store_error)
}
