//! What `#[derive(Event)]` makes of a type. Its errors are tested in its own crate.

use std::fmt;

use pillarbox::{EnqueueError, Event, Outbox, ToEvent};
use pillarbox_store::stores::memory::Memory;
use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;

fn event(typed: &impl ToEvent) -> Event {
    typed.to_event().expect("it has a JSON form").into_owned()
}

fn payload(event: &Event) -> Value {
    serde_json::from_slice(event.payload.as_bytes()).expect("it is JSON")
}

#[derive(Serialize, Event)]
#[event(topic = "pings", type = "Ping")]
struct Ping;

#[test]
fn an_omitted_argument_has_its_default() {
    let event = event(&Ping);
    let expected = Event::new("pillarbox-store", "pings")
        .event_type("Ping")
        .json(&())
        .expect("JSON")
        .id(event.id);
    assert_eq!(event, expected);
}

#[test]
fn every_call_makes_an_event_with_an_id_of_its_own() {
    assert_ne!(event(&Ping).id, event(&Ping).id);
}

#[derive(Serialize, Event)]
#[event(topic = "pings", type = "Identified")]
struct Identified {
    #[event(id)]
    event_id: Uuid,
}

#[test]
fn a_value_that_has_an_id_keeps_it() {
    let event_id = Uuid::new_v4();
    let typed = Identified { event_id };
    assert_eq!(event(&typed).id, event_id);
    assert_eq!(event(&typed), event(&typed));
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Severity {
    High,
}

impl fmt::Display for Severity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::High => formatter.write_str("high"),
        }
    }
}

#[derive(Serialize, Event)]
#[serde(rename_all = "camelCase")]
#[event(
    namespace = "shop",
    topic = "orders",
    type = "OrderCreated",
    version = 2,
    destination = "audit"
)]
struct OrderCreated {
    #[event(key, aggregate = "order")]
    order_id: u64,
    #[event(tenant)]
    tenant: Uuid,
    #[event(dedupe_key)]
    request: String,
    #[event(severity)]
    severity: Severity,
    #[serde(skip)]
    _secret: &'static str,
}

#[test]
fn fields_become_what_they_say_and_the_payload_is_the_serde_form() {
    let tenant = Uuid::new_v4();
    let event = event(&OrderCreated {
        order_id: 42,
        tenant,
        request: "r-1".to_owned(),
        severity: Severity::High,
        _secret: "hidden",
    });
    assert_eq!(
        payload(&event),
        json!({"orderId": 42, "tenant": tenant, "request": "r-1", "severity": "high"})
    );
    let mut expected = Event::new("shop", "orders")
        .id(event.id)
        .event_type("OrderCreated")
        .version(2)
        .aggregate("order", "42")
        .ordering_key("42")
        .tenant(tenant)
        .dedupe_key(format!("{tenant}/r-1"))
        .severity("high")
        .destination("audit");
    expected.payload = event.payload.clone();
    assert_eq!(event, expected);
}

#[derive(Serialize, Event)]
#[event(topic = "orders", type = "OrderNoted")]
struct Noted {
    #[event(key)]
    key: Option<u64>,
    #[event(tenant)]
    tenant: Option<Uuid>,
    #[event(dedupe_key)]
    once: Option<String>,
}

#[test]
fn an_option_that_is_none_says_nothing() {
    let nothing = event(&Noted {
        key: None,
        tenant: None,
        once: None,
    });
    assert_eq!(
        (&nothing.ordering_key, nothing.tenant_id, &nothing.dedupe_key),
        (&None, None, &None)
    );
    let without_a_tenant = event(&Noted {
        key: Some(7),
        tenant: None,
        once: Some("x".to_owned()),
    });
    assert_eq!(without_a_tenant.ordering_key.as_deref(), Some("7"));
    assert_eq!(without_a_tenant.dedupe_key.as_deref(), Some("x"));
}

#[test]
fn a_dedupe_key_that_begins_with_its_tenant_is_left_alone() {
    let tenant = Uuid::new_v4();
    let key = format!("{tenant}/x");
    let event = event(&Noted {
        key: None,
        tenant: Some(tenant),
        once: Some(key.clone()),
    });
    assert_eq!(event.dedupe_key, Some(key));
}

#[derive(Serialize, Event)]
#[event(
    topic = "orders",
    type = "OrderShipped",
    key = Self::key,
    aggregate = "order",
    aggregate_id = Self::order,
    tenant = whose,
    dedupe_key = Self::once,
    severity = Self::severity,
    destination = Self::destination,
)]
struct Shipped {
    customer: Uuid,
    order: u64,
}

fn whose(event: &Shipped) -> Uuid {
    event.customer
}

impl Shipped {
    fn key(&self) -> String {
        format!("order-{}", self.order)
    }

    fn order(&self) -> String {
        self.order.to_string()
    }

    fn once(&self) -> Option<String> {
        Some(format!("shipped-{}", self.order))
    }

    fn severity(&self) -> Option<String> {
        (self.order > 100).then(|| "low".to_owned())
    }

    fn destination(&self) -> String {
        "carrier".to_owned()
    }
}

#[test]
fn functions_say_what_fields_would() {
    let customer = Uuid::new_v4();
    let event = event(&Shipped { customer, order: 42 });
    let expected = Event::new("pillarbox-store", "orders")
        .id(event.id)
        .event_type("OrderShipped")
        .aggregate("order", "42")
        .ordering_key("order-42")
        .tenant(customer)
        .dedupe_key(format!("{customer}/shipped-42"))
        .destination("carrier")
        .json(&json!({"customer": customer, "order": 42}))
        .expect("JSON");
    assert_eq!(event, expected);
}

#[derive(Serialize, Event)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[event(topic = "members", severity = "low", aggregate = "member")]
enum MemberEvent {
    #[event(type = "MemberJoined", version = 3)]
    Joined {
        #[event(key, aggregate_id)]
        member: u64,
        name: String,
    },
    #[event(type = "MemberLeft", severity = "high", aggregate = "guest")]
    Left {
        #[event(aggregate_id)]
        guest: u64,
    },
}

#[derive(Serialize, Event)]
#[event(topic = "pairs", aggregate = "pair", aggregate_id = Self::id)]
enum Pair {
    #[event(type = "Both")]
    Both(#[event(key)] u64, u64),
    #[event(type = "None")]
    Neither,
}

impl Pair {
    fn id(&self) -> Option<String> {
        match self {
            Self::Both(one, other) => Some(format!("{one}-{other}")),
            Self::Neither => None,
        }
    }
}

#[test]
fn each_variant_is_an_event_of_its_own_and_says_more_than_its_type() {
    let joined = event(&MemberEvent::Joined {
        member: 7,
        name: "Ada".to_owned(),
    });
    assert_eq!(joined.event_type.as_deref(), Some("MemberJoined"));
    assert_eq!(joined.event_version, 3);
    assert_eq!(joined.severity.as_deref(), Some("low"));
    assert_eq!(joined.aggregate_type.as_deref(), Some("member"));
    assert_eq!(joined.aggregate_id.as_deref(), Some("7"));
    assert_eq!(joined.ordering_key.as_deref(), Some("7"));
    assert_eq!(
        payload(&joined),
        json!({"kind": "joined", "member": 7, "name": "Ada"})
    );

    let left = event(&MemberEvent::Left { guest: 8 });
    assert_eq!(left.event_type.as_deref(), Some("MemberLeft"));
    assert_eq!(left.event_version, 1);
    assert_eq!(left.severity.as_deref(), Some("high"));
    assert_eq!(left.aggregate_type.as_deref(), Some("guest"));
    assert_eq!(left.ordering_key, None);
}

#[test]
fn variants_need_no_names_for_their_fields_and_no_fields() {
    let both = event(&Pair::Both(1, 2));
    assert_eq!(both.ordering_key.as_deref(), Some("1"));
    assert_eq!(both.aggregate_id.as_deref(), Some("1-2"));
    assert_eq!(payload(&both), json!({"Both": [1, 2]}));
    let neither = event(&Pair::Neither);
    assert_eq!(neither.aggregate_id, None);
    assert_eq!(payload(&neither), json!("Neither"));
}

#[derive(Serialize, Event)]
#[event(topic = "changes", type = "Changed", crate = pillarbox)]
struct Changed<'a, T: fmt::Display, const N: usize>
where
    T: Clone,
{
    #[event(key)]
    what: &'a T,
    #[event(dedupe_key)]
    how: String,
    often: [u8; 2],
}

#[test]
fn a_type_may_have_parameters() {
    let event = event(&Changed::<_, 3> {
        what: &5,
        how: "so".to_owned(),
        often: [1, 2],
    });
    assert_eq!(event.ordering_key.as_deref(), Some("5"));
    assert_eq!(payload(&event), json!({"what": 5, "how": "so", "often": [1, 2]}));
}

#[tokio::test]
async fn it_is_enqueued_as_it_stands_alone_and_with_others() {
    let store = Memory::default();
    let outbox = Outbox::default();
    let mut transaction = store.begin();
    outbox.enqueue(&mut transaction, &Ping).await.expect("accepted");
    let pair = [Pair::Both(1, 2), Pair::Neither];
    let enqueued = outbox
        .enqueue_all(&mut transaction, &pair)
        .await
        .expect("accepted");
    assert_eq!(enqueued.len(), 2);
    assert!(enqueued.iter().all(|one| one.is_new()));
}

#[derive(Serialize, Event)]
#[event(topic = "maps", type = "Mapped")]
struct Mapped {
    by: std::collections::BTreeMap<Vec<u8>, u8>,
}

#[tokio::test]
async fn a_value_without_a_json_form_is_refused_when_it_is_enqueued() {
    let mut transaction = Memory::default().begin();
    let typed = Mapped {
        by: [(vec![1], 1)].into(),
    };
    let refused = Outbox::default().enqueue(&mut transaction, &typed).await;
    assert!(matches!(refused, Err(EnqueueError::NoJson(_))), "{refused:?}");
}
