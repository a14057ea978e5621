//! Each duty × what an event has, by `pillarbox enqueue`: the same as by SQL, which `boundaries/matrix.rs` of the store tries.

use pillarbox::inbox::Key;
use pillarbox_testkit::duties::log_in_as;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::command::{Finished, run_with_input};
use crate::fixture::{Fixture, postgres_url};

const TENANT: &str = "0190c2a4-8f4e-7c3a-9d51-0f2b6d1c7e5a";
const OTHER_TENANT: &str = "0190c2a4-8f4e-7c3a-9d51-0f2b6d1c7e5b";
/// The id of an event of another namespace.
const FOREIGN: &str = "0190c2a4-0000-7000-8000-000000000001";

/// What the command answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Enqueued,
    /// The role may not do that.
    Denied,
    /// No role may do that.
    Refused,
}

use Answer::{Denied, Enqueued, Refused};

/// What is special about an event, and what a producer of `shop` and others who may enqueue are answered.
fn facts() -> Vec<(&'static str, Value, Answer, Answer)> {
    let derived = Key::dedupe("billing", "orders", "invoice-2").id().to_string();
    vec![
        ("own", json!({}), Enqueued, Enqueued),
        (
            "a foreign namespace",
            json!({"namespace": "billing"}),
            Denied,
            Enqueued,
        ),
        (
            "a foreign tenant",
            json!({"tenant_id": OTHER_TENANT}),
            Denied,
            Enqueued,
        ),
        ("no tenant", json!({"tenant_id": null}), Denied, Enqueued),
        (
            "an own destination",
            json!({"destination": "mail"}),
            Enqueued,
            Enqueued,
        ),
        (
            "a foreign destination",
            json!({"destination": "ledger"}),
            Denied,
            Enqueued,
        ),
        (
            "an own dedupe key",
            json!({"dedupe_key": format!("{TENANT}/1")}),
            Enqueued,
            Enqueued,
        ),
        (
            "a dedupe key of another namespace",
            json!({"namespace": "billing", "tenant_id": null, "dedupe_key": "invoice-1"}),
            Denied,
            Enqueued, // as a duplicate
        ),
        (
            "a dedupe key of another tenant",
            json!({"dedupe_key": format!("{OTHER_TENANT}/1")}),
            Refused,
            Refused,
        ),
        (
            "an ordering key",
            json!({"ordering_key": "k"}),
            Enqueued,
            Enqueued,
        ),
        ("a new id", json!({"id": Uuid::now_v7()}), Enqueued, Enqueued),
        ("a foreign id", json!({"id": FOREIGN}), Refused, Refused),
        ("a derived id", json!({"id": derived}), Refused, Refused),
        ("a place in the order", json!({"seq": -1}), Refused, Refused),
        (
            "a time",
            json!({"deliver_at": "2000-01-01T00:00:00Z"}),
            Enqueued,
            Enqueued,
        ),
        (
            "a far time",
            json!({"deliver_at": "2999-01-01T00:00:00Z"}),
            Refused,
            Refused,
        ),
        (
            "the time of its creation",
            json!({"created_at": "2000-01-01T00:00:00Z"}),
            Refused,
            Refused,
        ),
        ("a status", json!({"status": "delivered"}), Refused, Refused),
    ]
}

fn answer(finished: &Finished) -> Answer {
    if finished.code == 0 {
        return Enqueued;
    }
    assert_eq!(finished.code, 1, "{finished:?}");
    let is_denied = ["permission denied", "may not"]
        .iter()
        .any(|words| finished.stderr.contains(words));
    if is_denied { Denied } else { Refused }
}

#[test]
fn a_duty_enqueues_by_command_what_it_may() {
    let fixture = Fixture::postgres("[[destination]]\nname = \"mail\"\ntype = \"log\"\n");
    fixture.run(&["migrate"]).success();
    let schema = fixture.schema().to_owned();
    fixture.sql(&format!(
        "insert into SCHEMA.outbox_events (id, namespace, topic, payload, dedupe_key)
         values ('{FOREIGN}', 'billing', 'orders', '{{}}', 'invoice-1')"
    ));
    let shop = ["--namespace", "shop", "--tenant", TENANT, "--destination", "mail"];
    let duties: [(&str, &[&str]); 7] = [
        ("owner", &[]),
        ("nobody", &[]),
        ("producer", &shop),
        ("writer", &[]),
        ("consumer", &["--name", "c"]),
        ("orchestrator", &["--saga", "order"]),
        ("dispatcher", &[]),
    ];
    let mut roles = Vec::new();
    for (who, bounds) in duties {
        let url = match who {
            "owner" => postgres_url(),
            _ => {
                let role = format!("{who}_{schema}");
                match who {
                    "nobody" => fixture.sql(&format!(
                        "create role {role} login; grant usage on schema SCHEMA to {role}"
                    )),
                    duty => {
                        fixture
                            .run(&[&["grant", duty, role.as_str(), "--create"], bounds].concat())
                            .success();
                    }
                }
                roles.push(role.clone());
                log_in_as(&postgres_url(), &role)
            }
        };
        for (what, fields, of_producer, of_others) in facts() {
            let mut event =
                json!({"namespace": "shop", "topic": "orders", "tenant_id": TENANT, "payload": {}});
            event
                .as_object_mut()
                .unwrap()
                .extend(fields.as_object().unwrap().clone());
            let arguments = ["enqueue", "--ndjson", "--database", &url, "--schema", &schema];
            let finished = run_with_input(fixture.path(), &arguments, &event.to_string());
            let expected = match who {
                "owner" | "writer" => of_others,
                "producer" => of_producer,
                // What no role may do, the command refuses before it asks the database.
                _ if of_others == Refused && what != "a foreign id" => Refused,
                _ => Denied,
            };
            assert_eq!(answer(&finished), expected, "{who}: {what}: {finished:?}");
        }
        fixture.sql(&format!(
            "delete from SCHEMA.outbox_events where id <> '{FOREIGN}'"
        ));
    }
    for role in roles {
        fixture.sql(&format!("drop owned by {role}; drop role {role}"));
    }
}
