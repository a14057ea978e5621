//! The parts of a row as SQL expressions: identity, state, times. `s` is the row of the adopted table.

use super::literal;
use crate::stores::postgres::adopt::SpeaksFor;
use crate::stores::postgres::adopt::inspect::{Column, quoted};
use crate::stores::postgres::adopt::layout::{EventId, Layout, LayoutError, Status};

/// A layout, with the types of its columns.
pub(super) struct TypedLayout<'a> {
    /// The adopted table's name in the configuration.
    pub(super) name: &'a str,
    pub(super) layout: &'a Layout,
    pub(super) columns: &'a [Column],
    /// For whom its rows may speak.
    pub(super) speaks_for: &'a SpeaksFor,
}

impl TypedLayout<'_> {
    pub(super) fn kind(&self, column: &str) -> &str {
        let found = self.columns.iter().find(|other| other.name == column);
        found.map_or("text", |column| column.kind.as_str())
    }

    pub(super) fn check_types(&self) -> Result<(), LayoutError> {
        let layout = self.layout;
        let times = [
            ("created_at", &layout.created_at),
            ("updated_at", &layout.updated_at),
            ("processed_at", &layout.processed_at),
            ("due_at", &layout.due_at),
            ("locked_until", &layout.locked_until),
            ("locked_at", &layout.locked_at),
        ];
        let numbers = [
            ("attempts", &layout.attempts),
            ("max_retries", &layout.max_retries),
        ];
        let wrong = |key: &str, column: &str, wanted| LayoutError::Type {
            key: key.to_owned(),
            column: column.to_owned(),
            found: self.kind(column).to_owned(),
            wanted,
        };
        for (key, column) in times {
            let Some(column) = column.as_deref() else { continue };
            if !self.kind(column).starts_with("timestamp") {
                return Err(wrong(
                    key,
                    column,
                    "it must be a timestamp, with or without time zone",
                ));
            }
        }
        for (key, column) in numbers {
            let Some(column) = column.as_deref() else { continue };
            if !matches!(self.kind(column), "smallint" | "integer" | "bigint") {
                return Err(wrong(key, column, "it must be an integer"));
            }
        }
        Ok(())
    }

    fn has_zone(&self, column: &str) -> bool {
        !self.kind(column).contains("without time zone")
    }

    /// A time of the table as `timestamptz`.
    pub(super) fn read_time(&self, column: &str) -> String {
        let name = quoted(column);
        if self.has_zone(column) {
            format!("s.{name}")
        } else {
            format!("(s.{name} at time zone {})", literal(&self.layout.time_zone.0))
        }
    }

    /// A `timestamptz` in the type of the column.
    pub(super) fn write_time(&self, column: &str, time: &str) -> String {
        if self.has_zone(column) {
            format!("({time})")
        } else {
            format!("(({time}) at time zone {})", literal(&self.layout.time_zone.0))
        }
    }

    pub(super) fn id(&self) -> String {
        format!("s.{}", quoted(&self.layout.id))
    }

    pub(super) fn id_text(&self) -> String {
        format!("{}::text", self.id())
    }

    /// Is it the row that this mapping row names?
    pub(super) fn is_its_row(&self, mapping: &str) -> String {
        format!("{} = {mapping}.row_id::{}", self.id(), self.kind(&self.layout.id))
    }

    /// Fails if a mapping row names an id that the table cannot have.
    pub(super) fn check_mapping(&self) -> String {
        let kind = self.kind(&self.layout.id);
        format!("select count(a.row_id::{kind}) from pillarbox.adopted a where a.adopted_table = $1")
    }

    /// The event's id. It is the row's own if that is a UUID, so that consumers keep seeing the ids they know. But no row can choose a
    /// UUID of version 8, which could be derived from another row or from a dedupe key.
    pub(super) fn event_id(&self) -> String {
        let (id, derived) = (self.id(), self.derived_id());
        if self.kind(&self.layout.id) == "uuid" && self.layout.event_id == EventId::Row {
            format!("case when get_byte(uuid_send({id}), 6) >> 4 = 8 then {derived} else {id} end")
        } else {
            derived
        }
    }

    /// A UUID of version 8, which no producer may choose. It never changes: rows are known by it.
    fn derived_id(&self) -> String {
        let name = literal(self.name);
        let hash = format!("md5({name} || E'\\x1f' || {})", self.id_text());
        format!("overlay(overlay({hash} placing '8' from 13) placing '8' from 17)::uuid")
    }

    /// The row's state columns in one text. It differs once others have changed them.
    pub(super) fn fingerprint(&self) -> String {
        let text = |column: &str| format!("coalesce(s.{}::text, '-')", quoted(column));
        let mut parts = Vec::new();
        match &self.layout.status {
            Status::Code { column, .. } => parts.push(text(column)),
            Status::Processed | Status::Presence => {}
        }
        if let Some(column) = &self.layout.processed_at {
            parts.push(format!(
                "case when s.{} is null then '-' else 'done' end",
                quoted(column)
            ));
        }
        parts.extend(self.layout.attempts.as_deref().map(text));
        // Another worker that takes the row over may change nothing else.
        let locked_by = self.layout.locked_by.as_deref();
        parts.extend(
            locked_by
                .filter(|_| self.layout.shows_processing().is_some())
                .map(text),
        );
        if parts.is_empty() {
            return "'-'::text".to_owned();
        }
        format!("concat_ws('|', {})", parts.join(", "))
    }

    /// Is the event still to be sent?
    pub(super) fn live(&self) -> String {
        format!("({})", self.branches().join(" or "))
    }

    /// The conditions under which a row is live. One per status code, because an index leads to one code at a time.
    pub(super) fn branches(&self) -> Vec<String> {
        match &self.layout.status {
            Status::Presence => vec!["true".to_owned()],
            Status::Processed => {
                let processed = self.layout.processed_at.as_deref().unwrap_or_default();
                let open = format!("s.{} is null", quoted(processed));
                vec![match (&self.layout.attempts, self.layout.max_attempts) {
                    (Some(column), Some(most)) => {
                        format!("({open} and coalesce(s.{}, 0) < {most})", quoted(column))
                    }
                    _ => open,
                }]
            }
            Status::Code {
                column,
                pending,
                processing,
                failed,
                ..
            } => {
                let is = |code: &str| format!("s.{} = {}", quoted(column), literal(code));
                let mut live = vec![is(pending)];
                live.extend(failed.as_deref().map(is));
                if let Some(code) = processing {
                    live.push(format!("({} and {})", is(code), self.stale()));
                }
                live
            }
        }
    }

    /// Has the lease of another program expired?
    fn stale(&self) -> String {
        let layout = self.layout;
        if let Some(column) = &layout.locked_until {
            let now = self.write_time(column, "now()");
            return format!("coalesce(s.{0} < {now}, true)", quoted(column));
        }
        let column = layout.locked_at.as_deref().unwrap_or_default();
        let seconds = layout.stale.unwrap_or_default().as_secs();
        let then = self.write_time(column, &format!("now() - interval '{seconds} seconds'"));
        format!("coalesce(s.{} < {then}, true)", quoted(column))
    }

    /// The columns of the order, then the id.
    pub(super) fn order(&self) -> Vec<String> {
        let columns = self.layout.order.iter().chain([&self.layout.id]);
        columns.map(|column| format!("s.{}", quoted(column))).collect()
    }
}
