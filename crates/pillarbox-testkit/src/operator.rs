//! Who operates in the tests.

use std::sync::LazyLock;

use pillarbox::StoreError;
use pillarbox_store::actor::{Kind, Permission, Reach};
use pillarbox_store::{Actor, OperateError};
use uuid::Uuid;

/// An operator who may do everything.
pub static OPERATOR: LazyLock<Actor> =
    LazyLock::new(|| Actor::new(Kind::Operator, "tests", Reach::System, Permission::ALL));

/// A service that may do everything for one tenant.
pub fn operator_of(tenant: Uuid) -> Actor {
    Actor::new(Kind::Service, "tests", Reach::Tenant(tenant), Permission::ALL)
}

/// The error of the database. Panics if the actor was not allowed.
pub fn store_error(error: OperateError) -> StoreError {
    match error {
        OperateError::Store(error) => error,
        OperateError::Forbidden(refused) => panic!("{refused}"),
    }
}
