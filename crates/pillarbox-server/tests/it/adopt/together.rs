//! Several adopted tables in one daemon, and rows with an unknown status.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use uuid::Uuid;

use super::hook::Hook;
use super::seeds::{ARAP, FAMILY_HUB, MODKIT, ORDER_SERVICE, REDIVER, Seed};
use super::system::System;
use crate::crash::queue::Queue;
use pillarbox_testkit::environment::variable;
use pillarbox_testkit::wait::{Load, until, until_some};

const ALL: [Seed; 5] = [ARAP, MODKIT, REDIVER, FAMILY_HUB, ORDER_SERVICE];

fn is_over(row: &Value) -> bool {
    !row["ProcessedOnUtc"].is_null()
        || ["delivered", "completed", "SENT"]
            .iter()
            .any(|word| row["status"] == *word)
        || row["status"] == 1
}

/// Two destinations on RabbitMQ and three webhooks.
fn config(system: &System, amqp: &str, hooks: &[Hook; 3]) -> String {
    let broker = |name: &str, key: &str| {
        format!(
            "[[destination]]\nname = \"{name}\"\ntype = \"rabbitmq\"\nurl = \"{amqp}\"\nexchange = \"{}\"\n\
             routing_key = \"{key}\"\n",
            system.name
        )
    };
    let adopt = |layout: &str, to: &str| {
        format!("[[adopt]]\nlayout = \"{layout}\"\nto = \"{to}\"\npoll = \"100ms\"\n")
    };
    [
        broker("arap.events", "arap.{event_type}"),
        broker("family-hub.events", "{event_type}"),
        hooks[0].destination("usage"),
        hooks[1].destination("notices"),
        hooks[2].destination("orders"),
        adopt("arap", "arap.events"),
        adopt("family-hub", "family-hub.events"),
        adopt("modkit", "usage"),
        "namespaces = [\"mini-chat\"]\n".to_owned(),
        adopt("rediver", "notices"),
        adopt("order-service", "orders"),
    ]
    .concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_daemon_serves_five_systems_while_they_keep_inserting() {
    let amqp = variable("PILLARBOX_TEST_AMQP_URL");
    let hooks = [Hook::start(|_| 200), Hook::start(|_| 200), Hook::start(|_| 200)];
    let system = System::new(Load::Heavy, &ALL).await;
    let queue = Queue::declare(&amqp, &system.name).await;
    let config = config(&system, &amqp, &hooks);
    let loads = ALL.map(|seed| system.start_load(seed));
    let daemon = system.start(&config);
    for seed in ALL {
        until(&format!("{} is served", seed.name), async || {
            let rows = system.rows(seed).await;
            rows.values().filter(|row| is_over(row)).count() > 20
        })
        .await;
    }
    daemon.stop().await;
    let daemon = system.start(&config);
    for load in loads {
        load.stop().await;
    }
    let mut rows = Vec::new();
    for seed in ALL {
        rows.push(system.until_all(seed, "are over", is_over).await);
    }
    daemon.stop().await;

    let ids: Vec<Vec<Uuid>> = rows.into_iter().map(|rows| rows.into_keys().collect()).collect();
    let [arap, modkit, rediver, family_hub, order_service] = ids.as_slice() else {
        panic!("five tables");
    };
    let messages = queue.read().await;
    let keyed = |prefix: &str| {
        let own = messages
            .iter()
            .filter(|message| message.routing_key.starts_with(prefix));
        sorted(own.map(|message| message.id).collect())
    };
    assert_eq!(keyed("arap."), *arap, "once each");
    assert_eq!(keyed("FamilyHub."), *family_hub, "once each");
    for (hook, ids) in hooks.iter().zip([modkit, rediver, order_service]) {
        assert_eq!(sorted(hook.accepted()), *ids, "once each");
    }
    let all: BTreeSet<Uuid> = ids.concat().into_iter().collect();
    assert_eq!(all, system.committed().await);
    queue.delete().await;
    system.remove().await;
}

fn sorted(mut ids: Vec<Uuid>) -> Vec<Uuid> {
    ids.sort_unstable();
    ids
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_with_an_unknown_status_are_left_alone_and_shown() {
    let hook = Hook::start(|_| 200);
    let system = System::new(Load::Light, &[ORDER_SERVICE]).await;
    let config = format!(
        "{}[[adopt]]\nlayout = \"order-service\"\npoll = \"100ms\"\n",
        hook.destination("hook")
    );
    let parked = system
        .produce_like(ORDER_SERVICE, 3, &[("'NEW'", "'PARKED'")])
        .await;
    let before = system.rows(ORDER_SERVICE).await;
    let good = system.produce(ORDER_SERVICE, 5).await;
    let daemon = system.start(&config);
    for id in &good {
        system.until(ORDER_SERVICE, *id, "is sent", is_over).await;
    }
    let printed = system.command(&["stats", "--json"]).success();
    let stats: Value = serde_json::from_str(&printed).expect("one object");
    assert_eq!(
        (
            &stats["adopted_tables"][0]["name"],
            &stats["adopted_tables"][0]["unknown"]
        ),
        (&json!("order-service"), &json!(3)),
        "{stats}"
    );
    let said = daemon.stop().await;
    assert!(
        said.contains("adopted rows with an unknown status ignored") && said.contains("rows=3"),
        "{said}"
    );
    let after = system.rows(ORDER_SERVICE).await;
    for id in parked {
        assert_eq!(after[&id], before[&id], "the row is unchanged");
    }
    assert_eq!(sorted(hook.accepted()), sorted(good));
    system.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_cannot_be_worked_on_is_named_and_the_other_goes_on() {
    let hook = Hook::start(|_| 200);
    let system = System::new(Load::Light, &[ORDER_SERVICE, REDIVER]).await;
    let adopt = |layout: &str| format!("[[adopt]]\nlayout = \"{layout}\"\npoll = \"100ms\"\n");
    let config = [hook.destination("hook"), adopt("order-service"), adopt("rediver")].concat();
    let daemon = system.start(&config);
    system.produce(ORDER_SERVICE, 1).await;
    system.until_all(ORDER_SERVICE, "are sent", is_over).await;

    system.psql("alter table outbox rename to elsewhere").await;
    until_some("the log names the table", async || {
        let log = daemon.log();
        let line = log
            .lines()
            .find(|line| line.contains("import from adopted table failed"))?;
        assert!(line.contains("order-service"), "{line}");
        Some(())
    })
    .await;
    system.produce(REDIVER, 3).await;
    system.until_all(REDIVER, "are completed", is_over).await;
    let log = daemon.log();
    assert!(!log.contains("database unavailable"), "{log}");

    system.psql("alter table elsewhere rename to outbox").await;
    system.produce(ORDER_SERVICE, 2).await;
    system.until_all(ORDER_SERVICE, "are sent", is_over).await;
    daemon.stop().await;
    system.remove().await;
}
