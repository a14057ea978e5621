//! The database roles. Each process logs in as a role of its own, which may do its duties in the outbox, use the tables of its
//! service, and no more. So a service that is taken over cannot forge the marks, sagas or tables of another.

use pillarbox_store::Actor;
use pillarbox_store::actor::{Kind, Permission, Reach};
use pillarbox_store::stores::postgres::{Bounds, Duty, Postgres};
use sqlx::{AssertSqlSafe, PgPool};

use crate::Result;
use crate::environment::Environment;
use crate::saga::{NAME, NAMESPACE};
use crate::services::Service;

/// The role of `shop order`.
pub(crate) const STOREFRONT: &str = "storefront";

/// What roles may do with the tables of the services.
const GRANTS: &str = include_str!("grants.sql");

/// Creates every role and grants its duties. The database is the owner's. It may run again.
pub(crate) async fn create(environment: &Environment, store: &Postgres, pool: &PgPool) -> Result<()> {
    let actor = Actor::new(Kind::Service, "shop migrate", Reach::System, Permission::ALL);
    let mut grants = GRANTS.to_owned();
    let services = Service::ALL.map(Service::as_str);
    for who in services.into_iter().chain([STOREFRONT]) {
        let role = environment.role(who);
        for (duty, bounds) in duties(who) {
            store.grant(&actor, duty, &bounds, &role, true).await?;
        }
        let quoted = format!(" to \"{}\";", role.replace('"', "\"\""));
        grants = grants.replace(&format!(" to {who};"), &quoted);
    }
    sqlx::raw_sql(AssertSqlSafe(grants)).execute(pool).await?;
    Ok(())
}

/// The duties of a process, which `pillarbox grant` gives in production.
fn duties(who: &str) -> Vec<(Duty, Bounds)> {
    let producer = (Duty::Producer, Bounds::namespaces([NAMESPACE]));
    let consumer = (Duty::Consumer, Bounds::names([who]));
    let orchestrator = (Duty::Orchestrator, Bounds::names([NAME]));
    match who {
        STOREFRONT => vec![producer, orchestrator],
        "orders" => vec![producer, consumer, orchestrator],
        "notifications" => vec![consumer],
        "dispatcher" => vec![(Duty::Dispatcher, Bounds::default())],
        _ => vec![producer, consumer],
    }
}
