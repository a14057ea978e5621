//! Layouts by name: those of five systems, and of Debezium's outbox event router.

use std::time::Duration;

use super::layout::{Counts, Delays, DeliveryOrder, Layout, Payload, Status, Zone};
use pillarbox::{Jitter, RetryPolicy};

/// How the system itself polls and retries. These are the defaults of the layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Habits {
    /// How often it polls.
    pub poll: Duration,
    /// How many rows it reads at once.
    pub batch: usize,
    /// Its retry policy.
    pub retry: RetryPolicy,
    /// How long its documents keep delivered rows. Only a suggestion: without `prune` nothing is deleted.
    pub keeps: Option<Duration>,
}

const DAY: Duration = Duration::from_secs(86_400);

/// The names of the built-in layouts.
pub fn built_ins() -> &'static [&'static str] {
    &[
        "arap",
        "modkit",
        "rediver",
        "family-hub",
        "order-service",
        "debezium",
    ]
}

/// The layout of this name.
pub fn built_in(name: &str) -> Option<Layout> {
    Some(match name {
        "arap" => arap(),
        "modkit" => modkit(),
        "rediver" => rediver(),
        "family-hub" => family_hub(),
        "order-service" => order_service(),
        "debezium" => debezium(),
        _ => return None,
    })
}

/// How the system of this name polls and retries.
pub fn habits(name: &str) -> Option<Habits> {
    let seconds = Duration::from_secs;
    let habits = |poll, batch, retry, keeps| Habits {
        poll,
        batch,
        retry,
        keeps,
    };
    Some(match name {
        "arap" => {
            let retry = RetryPolicy::steps(vec![seconds(30)]).max_attempts(3);
            habits(seconds(30), 100, retry, Some(30 * DAY))
        }
        // Its specification leaves poll, batch and limit to the operator.
        "modkit" => {
            let retry = RetryPolicy::exponential(seconds(1), seconds(300)).max_attempts(25);
            habits(seconds(1), 100, retry, None)
        }
        "rediver" => {
            let minutes = [2, 4, 8].map(|minutes| seconds(minutes * 60));
            let retry = RetryPolicy::steps(minutes.to_vec()).max_attempts(4);
            habits(seconds(5), 50, retry, Some(7 * DAY))
        }
        "family-hub" => {
            let retry = RetryPolicy::steps(FAMILY_HUB_WAITS.map(seconds).to_vec());
            habits(seconds(5), 100, retry, None)
        }
        "order-service" => {
            let retry = RetryPolicy::exponential(Duration::from_millis(100), seconds(60));
            let retry = retry.jitter(Jitter::None).max_attempts(5);
            habits(seconds(5), 10, retry, Some(30 * DAY))
        }
        // Debezium reads the database's log at once. A table is polled every second.
        "debezium" => habits(seconds(1), 100, RetryPolicy::default(), None),
        _ => return None,
    })
}

/// Waits in seconds; the last one repeats.
const FAMILY_HUB_WAITS: [u64; 7] = [1, 2, 5, 15, 60, 300, 900];

fn column(name: &str) -> Option<String> {
    Some(name.to_owned())
}

fn arap() -> Layout {
    Layout {
        event_type: column("Type"),
        created_at: column("OccurredOnUtc"),
        order: vec!["OccurredOnUtc".to_owned()],
        // Its job publishes one message after another.
        delivery_order: Some(DeliveryOrder::Table),
        processed_at: column("ProcessedOnUtc"),
        attempts: column("RetryCount"),
        max_attempts: Some(3),
        error: column("Error"),
        ..Layout::new(
            "outbox.outbox_messages",
            "Id",
            Payload::Column("Content".to_owned()),
        )
    }
}

fn modkit() -> Layout {
    Layout {
        namespace: column("namespace"),
        topic: column("topic"),
        tenant_id: column("tenant_id"),
        dedupe_key: column("dedupe_key"),
        created_at: column("created_at"),
        updated_at: column("updated_at"),
        order: vec!["created_at".to_owned()],
        delivery_order: Some(DeliveryOrder::None),
        due_at: column("next_attempt_at"),
        attempts: column("attempts"),
        counts: Counts::Claims,
        error: column("last_error"),
        locked_by: column("locked_by"),
        locked_until: column("locked_until"),
        status: Status::Code {
            column: "status".to_owned(),
            pending: "pending".to_owned(),
            processing: Some("processing".to_owned()),
            failed: None,
            delivered: "delivered".to_owned(),
            dead: Some("dead".to_owned()),
        },
        ..Layout::new(
            "modkit_outbox_events",
            "id",
            Payload::Column("payload".to_owned()),
        )
    }
}

fn rediver() -> Layout {
    let payload = ["title", "body", "severity", "url", "metadata"];
    Layout {
        event_type: column("event_type"),
        aggregate_type: column("aggregate_type"),
        aggregate_id: column("aggregate_id"),
        tenant_id: column("tenant_id"),
        severity: column("severity"),
        created_at: column("created_at"),
        updated_at: column("updated_at"),
        processed_at: column("processed_at"),
        order: vec!["scheduled_at".to_owned()],
        delivery_order: Some(DeliveryOrder::Key),
        due_at: column("scheduled_at"),
        attempts: column("retry_count"),
        max_retries: column("max_retries"),
        error: column("last_error"),
        locked_by: column("locked_by"),
        locked_at: column("locked_at"),
        stale: Some(Duration::from_secs(600)),
        status: Status::Code {
            column: "status".to_owned(),
            pending: "pending".to_owned(),
            processing: Some("processing".to_owned()),
            failed: Some("failed".to_owned()),
            delivered: "completed".to_owned(),
            dead: Some("dead".to_owned()),
        },
        ..Layout::new(
            "notification_outbox",
            "id",
            Payload::Columns(payload.map(str::to_owned).to_vec()),
        )
    }
}

fn family_hub() -> Layout {
    Layout {
        event_type: column("event_type"),
        event_version: column("event_version"),
        aggregate_type: column("aggregate_type"),
        aggregate_id: column("aggregate_id"),
        created_at: column("created_at"),
        updated_at: column("updated_at"),
        processed_at: column("processed_at"),
        order: vec!["created_at".to_owned()],
        delivery_order: Some(DeliveryOrder::Key),
        attempts: column("retry_count"),
        error: column("error_message"),
        clears_error: true,
        delays: Delays(FAMILY_HUB_WAITS.to_vec()),
        time_zone: Zone::default(),
        status: Status::Code {
            column: "status".to_owned(),
            pending: "0".to_owned(),
            processing: None,
            failed: None,
            delivered: "1".to_owned(),
            dead: Some("2".to_owned()),
        },
        ..Layout::new(
            "auth.outbox_events",
            "event_id",
            Payload::Column("payload".to_owned()),
        )
    }
}

fn order_service() -> Layout {
    Layout {
        event_type: column("event_type"),
        aggregate_type: column("aggregate_type"),
        aggregate_id: column("aggregate_id"),
        created_at: column("created_at"),
        processed_at: column("sent_at"),
        order: vec!["created_at".to_owned()],
        delivery_order: Some(DeliveryOrder::Key),
        error: column("error_message"),
        clears_error: true,
        status: Status::Code {
            column: "status".to_owned(),
            pending: "NEW".to_owned(),
            processing: None,
            failed: None,
            delivered: "SENT".to_owned(),
            dead: Some("FAILED".to_owned()),
        },
        ..Layout::new("outbox", "id", Payload::Column("payload".to_owned()))
    }
}

fn debezium() -> Layout {
    Layout {
        event_type: column("type"),
        aggregate_type: column("aggregatetype"),
        aggregate_id: column("aggregateid"),
        topic: column("aggregatetype"),
        status: Status::Presence,
        ..Layout::new("outbox", "id", Payload::Column("payload".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layout_has_habits_and_nothing_else_has() {
        for name in built_ins() {
            let habits = habits(name).expect("habits");
            assert!(habits.poll > Duration::ZERO && habits.batch > 0, "{name}");
            let limit = built_in(name).expect("a layout").max_attempts;
            assert!(limit.is_none() || limit == habits.retry.limit(), "{name}");
        }
        assert_eq!((habits("unknown"), built_in("unknown")), (None, None));
    }

    #[test]
    fn a_table_is_polled_as_its_system_polls_it() {
        let polled = |name: &str| habits(name).map(|habits| (habits.poll, habits.batch));
        let seconds = Duration::from_secs;
        assert_eq!(polled("rediver"), Some((seconds(5), 50)));
        assert_eq!(polled("modkit"), Some((seconds(1), 100)));
        assert_eq!(polled("arap"), Some((seconds(30), 100)));
        assert_eq!(polled("family-hub"), Some((seconds(5), 100)));
        assert_eq!(polled("order-service"), Some((seconds(5), 10)));
    }

    #[test]
    fn a_system_delivers_in_its_own_order() {
        let order = |name: &str| built_in(name).expect("a layout").delivers_by();
        for name in ["order-service", "family-hub", "rediver"] {
            assert_eq!(order(name), DeliveryOrder::Key, "{name}");
        }
        assert_eq!(order("arap"), DeliveryOrder::Table);
        assert_eq!(
            (order("modkit"), order("debezium")),
            (DeliveryOrder::None, DeliveryOrder::None)
        );
    }

    #[test]
    fn a_system_waits_as_its_document_says() {
        let waits = |name: &str| -> Vec<u64> {
            let retry = habits(name).expect("habits").retry;
            let wait = |attempts| retry.delay(attempts, 0.0);
            let millis = |wait: Duration| u64::try_from(wait.as_millis()).expect("short");
            (1..=9).map_while(wait).map(millis).collect()
        };
        assert_eq!(waits("arap"), [30_000, 30_000]);
        assert_eq!(waits("rediver"), [120_000, 240_000, 480_000]);
        assert_eq!(waits("order-service"), [100, 200, 400, 800]);
        let family_hub = [
            1000, 2000, 5000, 15_000, 60_000, 300_000, 900_000, 900_000, 900_000,
        ];
        assert_eq!(waits("family-hub"), family_hub);
        assert_eq!(waits("modkit")[..3], [500, 1000, 2000]);
    }

    #[test]
    fn every_layout_is_possible_and_reads_back_as_it_was_written() {
        for name in built_ins() {
            let layout = built_in(name).expect("it is there");
            assert_eq!(layout.check(), Ok(()), "{name}");
            let text = serde_json::to_string(&layout).expect("JSON");
            assert_eq!(
                serde_json::from_str::<Layout>(&text).expect("reads"),
                layout,
                "{name}"
            );
        }
    }
}
