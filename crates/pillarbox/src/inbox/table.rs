//! The table of an inbox in PostgreSQL, and its statements.

use std::sync::Arc;

use crate::schema::quoted;

/// An existing table of handled events, used as an inbox.
///
/// It needs a unique index on the event's id, or on the consumer and the event's id, and no other column that must be
/// filled in.
///
/// ```
/// use pillarbox::inbox::{Inbox, Table};
///
/// // create table audit.seen (who text, event uuid, at timestamptz not null, primary key (who, event))
/// let table = Table::new("audit.seen").consumer("who").event_id("event").handled_at("at");
/// let inbox = Inbox::adopting(table);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    name: String,
    consumer: Option<String>,
    event_id: String,
    handled_at: Option<String>,
    zone: Option<String>,
}

impl Table {
    /// A table by its name, with its schema before a dot, whose column `event_id` (`uuid` or text) says everything.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            consumer: None,
            event_id: "event_id".to_owned(),
            handled_at: None,
            zone: None,
        }
    }

    /// ARAP's: `outbox.processed_events (event_id uuid primary key, processed_at timestamp not null)`, in UTC. There is no
    /// column for the consumer: one table is one consumer's.
    pub fn arap() -> Self {
        Self::new("outbox.processed_events")
            .handled_at("processed_at")
            .zone("UTC")
    }

    /// The column of the consumer's name. Without it, the table belongs to one consumer.
    #[must_use]
    pub fn consumer(mut self, column: impl Into<String>) -> Self {
        self.consumer = Some(column.into());
        self
    }

    /// The column of the event's id.
    #[must_use]
    pub fn event_id(mut self, column: impl Into<String>) -> Self {
        self.event_id = column.into();
        self
    }

    /// The column of the time. Without it, nothing can be pruned.
    #[must_use]
    pub fn handled_at(mut self, column: impl Into<String>) -> Self {
        self.handled_at = Some(column.into());
        self
    }

    /// The zone of that column, if it is a `timestamp` without one.
    #[must_use]
    pub fn zone(mut self, zone: impl Into<String>) -> Self {
        self.zone = Some(zone.into());
        self
    }

    /// Our own.
    fn native(schema: &str) -> Self {
        Self::new(format!("{schema}.inbox"))
            .consumer("consumer")
            .handled_at("handled_at")
    }
}

/// The statements on a table. The first parameter is always the consumer.
#[derive(Debug)]
pub(crate) struct Statements {
    pub(super) mark: Arc<str>,
    pub(super) unmark: Arc<str>,
    /// `None` if the table has no column for the time.
    pub(super) prune: Option<Arc<str>>,
}

impl Statements {
    /// Those on our own table. Marks are removed by functions: a consumer may not DELETE, because it could then lock the table.
    pub(super) fn native(schema: &str) -> Self {
        let table = Table::native(schema);
        let schema = quoted(schema);
        let unmark = format!("select {schema}.unmark($1::text, $2::uuid[]) as place, '' as id");
        let prune = format!(
            "select {schema}.prune_inbox($1::text, make_interval(secs => $2::int), $3::int) as place, '' as id"
        );
        Self {
            unmark: unmark.into(),
            prune: Some(prune.into()),
            ..Self::from(&table)
        }
    }
}

impl From<&Table> for Statements {
    fn from(table: &Table) -> Self {
        let name = match table.name.split_once('.') {
            Some((schema, name)) => format!("{}.{}", quoted(schema), quoted(name)),
            None => quoted(&table.name),
        };
        let id = quoted(&table.event_id);
        let now = match &table.zone {
            Some(zone) => format!("now() at time zone '{}'", zone.replace('\'', "''")),
            None => "now()".to_owned(),
        };
        let consumer = table.consumer.as_deref().map(quoted);
        let at = table.handled_at.as_deref().map(quoted);
        // Where there is no such column, the parameter is looked at and passed over.
        let theirs = match &consumer {
            Some(column) => format!("{column} = $1::text"),
            None => "$1::text is not null".to_owned(),
        };
        let columns = [consumer.as_deref(), Some(&id), at.as_deref()];
        let columns: Vec<&str> = columns.into_iter().flatten().collect();
        let values = [
            consumer.is_some().then_some("$1::text"),
            Some("key"),
            at.is_some().then_some(now.as_str()),
        ];
        let values: Vec<&str> = values.into_iter().flatten().collect();
        // The ids come sorted, so that every transaction takes them in one order and two cannot deadlock. One row comes
        // back: how many are new, and which if that is not all of them.
        let mark = format!(
            "with marked as (
               insert into {name} ({}) select {}
               from unnest($2::uuid[]) with ordinality as given (key, ord) where $1::text is not null order by ord
               on conflict do nothing returning {id} as id)
             select count(*) as place,
               case when count(*) < cardinality($2::uuid[]) then coalesce(array_to_string(array_agg(id), ','), '')
                 else '' end as id
             from marked",
            columns.join(", "),
            values.join(", "),
        );
        let unmark = format!(
            "delete from {name} where {theirs} and {id}::uuid = any ($2::uuid[]) returning 0::bigint as place, {id}::text as id"
        );
        // A ctid is unique only within one partition, so the partition and the condition are compared too.
        let prune = at.map(|at| {
            let is_old = format!("{theirs} and {at} < {now} - make_interval(secs => $2::int)");
            let prune = format!(
                "with old as materialized (
                   select tableoid as part, ctid as place from {name} where {is_old}
                   order by {at} limit $3::int for update skip locked),
                 gone as (
                   delete from {name} where ctid = any (array (select place from old))
                     and ((tableoid, ctid) in (select part, place from old)) is true and {is_old} returning 1)
                 select count(*) as place, '' as id from gone"
            );
            Arc::from(prune)
        });
        Self {
            mark: mark.into(),
            unmark: unmark.into(),
            prune,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_others_are_quoted() {
        let table = Table::new("a\"b.c d")
            .event_id("e'f")
            .handled_at("at")
            .zone("Europe/O'x");
        let sql = Statements::from(&table);
        assert!(sql.mark.contains(r#""a""b"."c d" ("e'f", "at")"#), "{}", sql.mark);
        assert!(sql.mark.contains("'Europe/O''x'"), "{}", sql.mark);
    }
}
