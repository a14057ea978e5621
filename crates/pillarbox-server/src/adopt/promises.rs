//! What holds for a table with such a layout, in sentences.

use std::time::Duration;

use pillarbox_store::stores::postgres::adopt::{Layout, Status};

use super::propose::Facts;

/// Which promises hold.
pub(crate) fn promises(layout: &Layout, facts: &Facts, poll: Duration) -> Vec<String> {
    let mut said = vec![
        "at least once: a row is ended only after the destination confirmed it, in one transaction with our own row".to_owned(),
        identity(layout, facts),
        order(layout),
        format!(
            "a new row is found within `poll` ({}): that is the delay to expect, not the second of a native outbox",
            humantime::format_duration(poll)
        ),
        "one worker at a time takes rows over; several may deliver, and none delivers a row that another one has".to_owned(),
        given_up(layout),
    ];
    said.extend(in_processing(layout));
    if layout.error.is_some() {
        said.push("while the destination is away the error is written and nothing is counted: an outage kills no row".to_owned());
    }
    said
}

fn identity(layout: &Layout, facts: &Facts) -> String {
    let is_uuid = facts
        .columns
        .iter()
        .any(|it| it.name == layout.id && it.kind == "uuid");
    if is_uuid {
        format!("consumers know an event by its `{}`", layout.id)
    } else {
        format!(
            "consumers know an event by a UUID that is made of its `{}`, always the same",
            layout.id
        )
    }
}

fn order(layout: &Layout) -> String {
    let mut by: Vec<String> = layout.order.iter().map(|name| format!("`{name}`")).collect();
    by.push(format!("`{}`", layout.id));
    let by = by.join(", ");
    match &layout.ordering_key {
        Some(key) => format!("order: rows of one `{key}` one after another, as they are taken over, by {by}"),
        None => {
            let hint = layout.aggregate_id.as_deref();
            let hint = hint.map_or_else(String::new, |id| {
                format!("; `ordering_key = \"{id}\"` sends those of one `{id}` one after another")
            });
            format!(
                "order: rows are taken over by {by} and sent side by side, so only as a best effort{hint}"
            )
        }
    }
}

fn given_up(layout: &Layout) -> String {
    match &layout.status {
        Status::Code { column, dead: Some(code), .. } => {
            format!("a row that is given up on says so: `{column}` is {code}")
        }
        Status::Processed if layout.attempts.is_some() => {
            let column = layout.attempts.as_deref().unwrap_or_default();
            let most = layout.max_attempts.unwrap_or_default();
            format!("a row that is given up on says so: `{column}` is {most}")
        }
        Status::Code { .. } | Status::Processed | Status::Presence => {
            "a row that is given up on stays as it is in the table and is not taken again; `pillarbox events ls --status \
             dead` lists it"
                .to_owned()
        }
    }
}

fn in_processing(layout: &Layout) -> Option<String> {
    match &layout.status {
        Status::Code {
            processing: Some(code),
            column,
            ..
        } => Some(format!(
            "`{code}` is respected while its lease lasts and never written: a row that is on its way keeps its `{column}`"
        )),
        Status::Code { .. } | Status::Processed => None,
        Status::Presence => Some("a row is deleted when it was delivered".to_owned()),
    }
}
