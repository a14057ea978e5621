//! What Pillarbox promises for a table with this layout, in sentences.

use std::time::Duration;

use pillarbox_store::stores::postgres::adopt::{DeliveryOrder, Layout, Status};

use super::propose::Facts;

pub(crate) fn promises(layout: &Layout, facts: &Facts, poll: Duration) -> Vec<String> {
    let mut promises = vec![
        "at least once: a row is written back as delivered only after the destination confirmed it, in the transaction that settles it".to_owned(),
        identity(layout, facts),
        order(layout),
        format!(
            "delay: a new row is found within `poll` ({})",
            humantime::format_duration(poll)
        ),
        "workers: one at a time imports rows; any number deliver them, and a row is in flight on one worker only".to_owned(),
        dead(layout),
    ];
    promises.extend(in_processing(layout));
    if layout.error.is_some() {
        promises.push("outages: while the destination is unavailable, the error is written back and the counter stays as it is".to_owned());
    }
    promises
}

fn identity(layout: &Layout, facts: &Facts) -> String {
    let is_uuid = facts
        .columns
        .iter()
        .any(|it| it.name == layout.id && it.kind == "uuid");
    if is_uuid {
        format!("event id: the row's `{}`", layout.id)
    } else {
        format!(
            "event id: a UUID derived from the row's `{}`, always the same",
            layout.id
        )
    }
}

fn order(layout: &Layout) -> String {
    let mut by: Vec<String> = layout.order.iter().map(|name| format!("`{name}`")).collect();
    by.push(format!("`{}`", layout.id));
    let by = by.join(", ");
    let apart = "a failing row is retried apart and holds no other back";
    match layout.delivers_by() {
        DeliveryOrder::Table => format!("order: first attempts follow {by}; {apart}"),
        DeliveryOrder::Key => {
            let key = layout.ordering_key.as_ref().or(layout.aggregate_id.as_ref());
            let key = key.map_or("", String::as_str);
            format!("order: first attempts of rows with the same `{key}` follow {by}; {apart}")
        }
        DeliveryOrder::None => {
            let hint = layout.aggregate_id.as_deref();
            let hint = hint.map_or_else(String::new, |id| {
                format!(
                    "; set `delivery_order = \"key\"` to send rows with the same `{id}` one after another"
                )
            });
            format!(
                "order: rows are imported by {by} and sent concurrently, so the order is best effort{hint}"
            )
        }
    }
}

fn dead(layout: &Layout) -> String {
    match &layout.status {
        Status::Code { column, dead: Some(code), .. } => {
            format!("dead rows: `{column}` is {code}")
        }
        Status::Processed if layout.attempts.is_some() => {
            let column = layout.attempts.as_deref().unwrap_or_default();
            let most = layout.max_attempts.unwrap_or_default();
            format!("dead rows: `{column}` is {most}")
        }
        Status::Code { .. } | Status::Processed | Status::Presence => {
            "dead rows: the table does not show them, and they are not imported again; `pillarbox events ls --status dead` \
             lists them"
                .to_owned()
        }
    }
}

fn in_processing(layout: &Layout) -> Option<String> {
    match &layout.status {
        Status::Code { column, .. } if layout.shows_processing().is_some() => Some(format!(
            "a row in progress: `{column}` is {}, with a lock that is renewed, so that another worker leaves it alone",
            layout.shows_processing().unwrap_or_default()
        )),
        Status::Code {
            processing: Some(code),
            column,
            ..
        } => Some(format!(
            "`{code}` is read and never written: a row in progress keeps its `{column}`"
        )),
        Status::Code { .. } | Status::Processed => None,
        Status::Presence => Some("a row is deleted when it is delivered".to_owned()),
    }
}
