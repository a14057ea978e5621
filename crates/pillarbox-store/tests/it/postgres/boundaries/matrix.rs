//! Each duty × what an event has × each way to write it: allowed or not.

use std::collections::BTreeMap;

use pillarbox::inbox::Key;
use pillarbox_store::stores::postgres::{Duty, Postgres};
use pillarbox_testkit::store_suite::Harness;

use super::super::harness::PostgresHarness;
use super::super::privileges::{as_role, on_duty};
use super::{OTHER_TENANT, TENANT, code, leave, shop};

const WAYS: [Way; 3] = [Way::Function, Way::Array, Way::Insert];

#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Function,
    Array,
    Insert,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Who {
    Owner,
    Nobody,
    On(Duty),
}

/// What is special about an event.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fact {
    Own,
    ForeignNamespace,
    ForeignTenant,
    NoTenant,
    OwnDestination,
    ForeignDestination,
    OwnKey,
    ForeignKey,
    KeyOfAnotherTenant,
    OwnOrderingKey,
    NewId,
    ForeignId,
    DerivedId,
    Seq,
    Time,
    FarTime,
    CreatedAt,
    Status,
}

const FACTS: [Fact; 18] = [
    Fact::Own,
    Fact::ForeignNamespace,
    Fact::ForeignTenant,
    Fact::NoTenant,
    Fact::OwnDestination,
    Fact::ForeignDestination,
    Fact::OwnKey,
    Fact::ForeignKey,
    Fact::KeyOfAnotherTenant,
    Fact::OwnOrderingKey,
    Fact::NewId,
    Fact::ForeignId,
    Fact::DerivedId,
    Fact::Seq,
    Fact::Time,
    Fact::FarTime,
    Fact::CreatedAt,
    Fact::Status,
];

/// The id of an event of another namespace, and the dedupe key that it has.
const FOREIGN: &str = "0190c2a4-0000-7000-8000-000000000001";

/// The event's columns as texts.
fn event(fact: Fact) -> BTreeMap<&'static str, String> {
    let mut event = BTreeMap::from([
        ("namespace", "shop".to_owned()),
        ("topic", "orders".to_owned()),
        ("tenant_id", TENANT.to_string()),
        ("payload", "{}".to_owned()),
    ]);
    let foreign_id = "0190c2a4-0000-7000-8000-00000000000f".to_owned();
    let (column, value) = match fact {
        Fact::Own => return event,
        Fact::NoTenant => {
            event.remove("tenant_id");
            return event;
        }
        Fact::ForeignKey => {
            event.insert("namespace", "billing".to_owned());
            event.remove("tenant_id");
            ("dedupe_key", "invoice-1".to_owned())
        }
        Fact::ForeignNamespace => ("namespace", "billing".to_owned()),
        Fact::ForeignTenant => ("tenant_id", OTHER_TENANT.to_string()),
        Fact::OwnDestination => ("destination", "mail".to_owned()),
        Fact::ForeignDestination => ("destination", "ledger".to_owned()),
        Fact::OwnKey => ("dedupe_key", format!("{TENANT}/1")),
        Fact::KeyOfAnotherTenant => ("dedupe_key", format!("{OTHER_TENANT}/1")),
        Fact::OwnOrderingKey => ("ordering_key", "k".to_owned()),
        Fact::NewId => ("id", foreign_id),
        Fact::ForeignId => ("id", FOREIGN.to_owned()),
        Fact::DerivedId => (
            "id",
            Key::dedupe("billing", "orders", "invoice-2").id().to_string(),
        ),
        Fact::Seq => ("seq", "-9223372036854775808".to_owned()),
        Fact::Time => ("deliver_at", "2000-01-01T00:00:00Z".to_owned()),
        Fact::FarTime => ("deliver_at", "2099-01-01T00:00:00Z".to_owned()),
        Fact::CreatedAt => ("created_at", "2000-01-01T00:00:00Z".to_owned()),
        Fact::Status => ("status", "delivered".to_owned()),
    };
    event.insert(column, value);
    event
}

/// The statement that writes it.
fn statement(way: Way, fact: Fact) -> String {
    let event = event(fact);
    match way {
        Way::Function => {
            let arguments = event.iter().map(|(name, value)| format!("{name} => '{value}'"));
            let arguments: Vec<String> = arguments.collect();
            format!("select id from pillarbox.enqueue({})", arguments.join(", "))
        }
        Way::Array => {
            let values = event.iter().map(|(name, value)| match *name {
                "payload" => format!("\"payload\": {value}"),
                name => format!("\"{name}\": \"{value}\""),
            });
            let values: Vec<String> = values.collect();
            format!(
                "select id from pillarbox.enqueue_many('[{{{}}}]')",
                values.join(", ")
            )
        }
        Way::Insert => {
            let column = |name: &&str| {
                if *name == "deliver_at" {
                    "next_attempt_at"
                } else {
                    *name
                }
                .to_owned()
            };
            let columns: Vec<String> = event.keys().map(column).collect();
            let values: Vec<String> = event.values().map(|value| format!("'{value}'")).collect();
            format!(
                "insert into pillarbox.outbox_events ({}) values ({})",
                columns.join(", "),
                values.join(", ")
            )
        }
    }
}

const DENIED: Option<&str> = Some("42501");
const INVALID: Option<&str> = Some("22023");
const TAKEN: Option<&str> = Some("23505");
const VIOLATED: Option<&str> = Some("23514");
const NO_SUCH_ARGUMENT: Option<&str> = Some("42883");

/// The code of the error, or `None` if it is allowed.
fn expected(who: Who, way: Way, fact: Fact) -> Option<&'static str> {
    match way {
        Way::Insert => by_insert(who, fact),
        Way::Function if matches!(fact, Fact::Seq | Fact::CreatedAt | Fact::Status) => NO_SUCH_ARGUMENT,
        Way::Function | Way::Array => by_function(who, fact),
    }
}

fn by_function(who: Who, fact: Fact) -> Option<&'static str> {
    let is_bound = match who {
        Who::Owner => false,
        Who::On(Duty::Producer) => true,
        Who::Nobody | Who::On(_) => return DENIED,
    };
    match fact {
        Fact::Own | Fact::OwnDestination | Fact::OwnKey | Fact::OwnOrderingKey | Fact::NewId | Fact::Time => {
            None
        }
        Fact::ForeignNamespace
        | Fact::ForeignTenant
        | Fact::NoTenant
        | Fact::ForeignDestination
        | Fact::ForeignKey => DENIED.filter(|_| is_bound),
        Fact::ForeignId => TAKEN,
        Fact::DerivedId
        | Fact::KeyOfAnotherTenant
        | Fact::FarTime
        | Fact::Seq
        | Fact::CreatedAt
        | Fact::Status => INVALID,
    }
}

fn by_insert(who: Who, fact: Fact) -> Option<&'static str> {
    match (who, fact) {
        // A dispatcher inserts siblings, whose place in the order is given.
        (Who::On(Duty::Dispatcher), Fact::Seq) => None,
        (
            Who::Nobody
            | Who::On(Duty::Producer | Duty::Consumer | Duty::Orchestrator | Duty::Dispatcher | Duty::Api),
            _,
        )
        | (Who::On(Duty::Writer | Duty::ApiAnyTenant), Fact::CreatedAt | Fact::Status) => DENIED,
        (Who::On(Duty::Writer | Duty::ApiAnyTenant) | Who::Owner, Fact::ForeignKey | Fact::ForeignId) => {
            TAKEN
        }
        (Who::On(Duty::Writer | Duty::ApiAnyTenant) | Who::Owner, Fact::DerivedId) => VIOLATED,
        (Who::On(Duty::Writer | Duty::ApiAnyTenant) | Who::Owner, _) => None,
    }
}

async fn check(harness: &PostgresHarness, who: Who, store: &Postgres) {
    for way in WAYS {
        for fact in FACTS {
            let found = code(harness, store, &statement(way, fact)).await;
            assert_eq!(
                found.as_deref(),
                expected(who, way, fact),
                "{who:?} {way:?} {fact:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_duty_writes_what_it_may_in_every_way() {
    let harness = PostgresHarness::direct().await;
    harness
        .execute(&format!(
            "insert into pillarbox.outbox_events (id, namespace, topic, payload, dedupe_key)
             values ('{FOREIGN}', 'billing', 'orders', '{{}}', 'invoice-1')"
        ))
        .await;
    check(&harness, Who::Owner, &harness.store).await;
    let (role, store) = as_role(&harness, "").await;
    // Without the permission to use the schema, every answer is the same.
    harness
        .execute(&format!(
            "grant usage on schema {} to {role}",
            harness.store.schema()
        ))
        .await;
    check(&harness, Who::Nobody, &store).await;
    leave(&harness, &role, store).await;
    for duty in Duty::ALL {
        let (role, store) = match duty {
            Duty::Producer => shop(&harness).await,
            duty => on_duty(&harness, duty).await,
        };
        check(&harness, Who::On(duty), &store).await;
        leave(&harness, &role, store).await;
    }
    harness.clean_up().await;
}
