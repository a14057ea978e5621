//! Writes a layout for `pillarbox.toml`.

use std::time::Duration;

use pillarbox_store::stores::postgres::adopt::{
    Counts, DeliveryOrder, Layout, Payload, Status, Zone, built_in, habits,
};

use super::propose::Proposal;
use crate::config::in_days;

/// Proposed where the documents of a system name no age.
const KEEPS: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The sections `[[adopt]]` and `[[destination]]`.
///
/// `namespaces` are those that the rows name now. Without rows the list is empty, so that `config check` asks for it.
pub(crate) fn toml(proposal: &Proposal, database: Option<&str>, namespaces: &[String]) -> String {
    let layout = &proposal.layout;
    let name = proposal.built_in.unwrap_or_else(|| layout.names().1);
    let mut lines = vec!["[[adopt]]".to_owned()];
    let mut put = |key: &str, value: String| lines.push(format!("{key} = {value}"));
    match proposal.built_in {
        Some(built_in_name) => {
            put("layout", text(built_in_name));
            if built_in(built_in_name).is_some_and(|known| known.table != layout.table) {
                put("table", text(&layout.table));
            }
        }
        None => describe(layout, &mut put),
    }
    if let Some(content_type) = &layout.content_type {
        put("content_type", text(content_type));
    }
    if layout.namespace.is_some() {
        put("namespaces", texts(namespaces));
    }
    if let Some(database) = database {
        put("database", text(database));
    }
    put("to", text(name));
    lines.extend(retention(proposal));
    lines.push(String::new());
    lines.push(destination(proposal.built_in, name));
    lines.join("\n")
}

/// What could be deleted, as comments: nothing is deleted from a table of others unless its owner says so.
fn retention(proposal: &Proposal) -> Vec<String> {
    let layout = &proposal.layout;
    let keeps = proposal.built_in.and_then(habits).and_then(|habits| habits.keeps);
    let days = |age: Option<Duration>| text(&in_days(age.unwrap_or(KEEPS)));
    let delivered = layout
        .delivered_since()
        .is_ok()
        .then(|| format!("#prune = {}", days(keeps)));
    let dead = layout
        .dead_since()
        .is_ok()
        .then(|| format!("#prune_dead = {}", days(None)));
    delivered.into_iter().chain(dead).collect()
}

/// A TOML string. Every JSON string is one.
fn text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn texts(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|it| text(it)).collect();
    format!("[{}]", texts.join(", "))
}

fn describe(layout: &Layout, put: &mut impl FnMut(&str, String)) {
    put("table", text(&layout.table));
    put("id", text(&layout.id));
    match &layout.payload {
        Payload::Column(column) => put("payload", text(column)),
        Payload::Columns(columns) => put("payload", texts(columns)),
    }
    if !layout.order.is_empty() {
        put("order", texts(&layout.order));
    }
    if let Some(order) = layout.delivery_order {
        put("delivery_order", text(delivery_order(order)));
    }
    put("status", status(&layout.status));
    for (key, column) in layout.named() {
        if !matches!(key.as_str(), "id" | "payload" | "order" | "status.column") {
            put(&key, text(column));
        }
    }
    if layout.counts == Counts::Claims {
        put("counts", text("claims"));
    }
    if let Some(attempts) = layout.max_attempts {
        put("max_attempts", attempts.to_string());
    }
    if layout.clears_error {
        put("clears_error", "true".to_owned());
    }
    if let Some(stale) = layout.stale {
        put("stale", text(&humantime::format_duration(stale).to_string()));
    }
    if let Some(write) = layout.write_processing {
        put("write_processing", write.to_string());
    }
    if layout.time_zone != Zone::default() {
        put("time_zone", text(&layout.time_zone.0));
    }
}

fn delivery_order(order: DeliveryOrder) -> &'static str {
    match order {
        DeliveryOrder::None => "none",
        DeliveryOrder::Key => "key",
        DeliveryOrder::Table => "table",
    }
}

fn status(status: &Status) -> String {
    match status {
        Status::Processed => "{ state_by = \"processed\" }".to_owned(),
        Status::Presence => "{ state_by = \"presence\" }".to_owned(),
        Status::Code {
            column,
            pending,
            processing,
            failed,
            delivered,
            dead,
        } => {
            let codes = [
                ("column", Some(column)),
                ("pending", Some(pending)),
                ("processing", processing.as_ref()),
                ("failed", failed.as_ref()),
                ("delivered", Some(delivered)),
                ("dead", dead.as_ref()),
            ];
            let codes = codes
                .into_iter()
                .filter_map(|(key, code)| Some(format!("{key} = {}", text(code?))));
            let codes: Vec<String> = codes.collect();
            format!("{{ state_by = \"code\", {} }}", codes.join(", "))
        }
    }
}

/// The destination that the system's own documents name, or a webhook.
fn destination(built_in: Option<&str>, name: &str) -> String {
    let keys = match built_in {
        Some("arap") => {
            "type = \"rabbitmq\"\nurl = { env = \"AMQP_URL\" }\nexchange = \"arap.events\"\nrouting_key = \"arap.{event_type}\""
        }
        Some("family-hub") => {
            "type = \"rabbitmq\"\nurl = { env = \"AMQP_URL\" }\nexchange = \"family-hub.events\"\nrouting_key = \"{event_type}\""
        }
        // No template knows this name, so `config check` names the line if it is not filled in.
        Some("order-service") => {
            "type = \"kafka\"\nbrokers = \"localhost:9092\"\ntopic = \"{fill_in_the_topic}\"\nkey = \"{aggregate_id}\""
        }
        // Debezium's own default.
        Some("debezium") => {
            "type = \"kafka\"\nbrokers = \"localhost:9092\"\ntopic = \"outbox.event.{aggregate_type}\"\nkey = \"{aggregate_id}\""
        }
        _ => "type = \"webhook\"\nurl = { env = \"WEBHOOK_URL\" }",
    };
    format!("[[destination]]\nname = {}\n{keys}", text(name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use pillarbox_store::stores::postgres::adopt::{Column, built_ins};

    use super::*;
    use crate::adopt::propose::{Facts, propose};
    use crate::config;

    fn read_back(text: &str) -> Layout {
        let text = format!("database.url = \"postgres://localhost/shop\"\n{text}")
            .replace("{fill_in_the_topic}", "orders");
        let config = config::read(&text).unwrap_or_else(|wrong| panic!("{wrong}\n{text}"));
        config.adopt[0].table.layout.clone()
    }

    #[test]
    fn a_built_in_layout_reads_back_with_its_table() {
        for name in built_ins() {
            let mut layout = built_in(name).expect("a layout");
            layout.table = "elsewhere.box".to_owned();
            let proposal = Proposal {
                built_in: Some(name),
                layout,
                reasons: Vec::new(),
                warnings: Vec::new(),
            };
            assert_eq!(
                read_back(&toml(&proposal, None, &["shop".to_owned()])),
                proposal.layout,
                "{name}"
            );
        }
    }

    #[test]
    fn the_proposed_retention_is_that_of_the_system_and_is_accepted() {
        let proposed = |name: &'static str| {
            let proposal = Proposal {
                built_in: Some(name),
                layout: built_in(name).expect("a layout"),
                reasons: Vec::new(),
                warnings: Vec::new(),
            };
            let text = toml(&proposal, None, &["shop".to_owned()]);
            let lines: Vec<String> = text
                .lines()
                .filter(|line| line.starts_with('#'))
                .map(str::to_owned)
                .collect();
            read_back(&text.replace("#prune", "prune"));
            lines.join(" ")
        };
        assert_eq!(
            proposed("rediver"),
            "#prune = \"7 days\" #prune_dead = \"30 days\""
        );
        assert_eq!(
            proposed("modkit"),
            "#prune = \"30 days\" #prune_dead = \"30 days\""
        );
        assert_eq!(proposed("order-service"), "#prune = \"30 days\"");
        assert_eq!(proposed("debezium"), "");
    }

    #[test]
    fn a_described_layout_reads_back_as_proposed() {
        let columns = [
            ("Id", "uuid"),
            ("Name\"s", "text"),
            ("data", "jsonb"),
            ("state", "text"),
            ("attempts", "integer"),
            ("locked_at", "timestamp with time zone"),
            ("created", "timestamp with time zone"),
        ];
        let facts = Facts {
            table: "a.b".to_owned(),
            columns: columns
                .map(|(name, kind)| Column {
                    name: name.to_owned(),
                    kind: kind.to_owned(),
                    nullable: false,
                })
                .to_vec(),
            keys: vec!["Id".to_owned()],
            codes: BTreeMap::from([(
                "state".to_owned(),
                ["new", "processing", "failed", "dead", "done"]
                    .map(str::to_owned)
                    .to_vec(),
            )]),
            sample: None,
        };
        let proposal = propose(&facts).expect("a proposal");
        assert_eq!(
            read_back(&toml(&proposal, None, &["shop".to_owned()])),
            proposal.layout
        );
    }

    #[test]
    fn content_type_is_written_beside_both_kinds_of_layout() {
        let mut layout = built_in("order-service").expect("a layout");
        layout.content_type = Some("text/plain; charset=utf-8".to_owned());
        for built_in in [Some("order-service"), None] {
            let proposal = Proposal {
                built_in,
                layout: layout.clone(),
                reasons: Vec::new(),
                warnings: Vec::new(),
            };
            assert_eq!(read_back(&toml(&proposal, None, &["shop".to_owned()])), layout);
        }
    }

    #[test]
    fn a_topic_that_is_not_filled_in_is_rejected() {
        let proposal = Proposal {
            built_in: Some("order-service"),
            layout: built_in("order-service").expect("a layout"),
            reasons: Vec::new(),
            warnings: Vec::new(),
        };
        let text = format!(
            "database.url = \"postgres://localhost/shop\"\n{}",
            toml(&proposal, None, &["shop".to_owned()])
        );
        let error = config::read(&text).expect_err("the topic is missing").to_string();
        assert!(error.contains("fill_in_the_topic"), "{error}");
    }
}
