//! Layouts by name: those of five systems, and of Debezium's outbox event router.

use std::time::Duration;

use super::layout::{Counts, Delays, Layout, Payload, Status, Zone};

/// The names that [`built_in`] knows.
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

fn column(name: &str) -> Option<String> {
    Some(name.to_owned())
}

fn arap() -> Layout {
    Layout {
        event_type: column("Type"),
        created_at: column("OccurredOnUtc"),
        order: vec!["OccurredOnUtc".to_owned()],
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
        attempts: column("retry_count"),
        error: column("error_message"),
        clears_error: true,
        delays: Delays(vec![1, 2, 5, 15, 60, 300, 900]),
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
