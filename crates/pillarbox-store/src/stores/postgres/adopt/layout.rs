//! The description of an adopted table.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use pillarbox::internal::MAX_NAME;

/// The columns of an adopted table, and how it shows the state of a row. Columns that it does not have are left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    /// The table, with its schema if it needs one: `outbox.outbox_messages`.
    pub table: String,
    /// The column that identifies a row.
    pub id: String,
    /// What an event's id is.
    #[serde(default, skip_serializing_if = "EventId::is_row")]
    pub event_id: EventId,
    /// The column with the payload, or several columns that form one JSON object.
    pub payload: Payload,
    /// The media type of the payload. Without it, text counts as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// The columns of the order in which rows are imported. Equal rows follow their id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub order: Vec<String>,
    /// The order in which rows are delivered. Without it, rows with an `ordering_key` are delivered in the order of their key,
    /// and others in no order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery_order: Option<DeliveryOrder>,
    /// How the table shows the state of a row.
    #[serde(default)]
    pub status: Status,
    /// The type of the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    /// The version of the payload's schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_version: Option<String>,
    /// The type of the aggregate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregate_type: Option<String>,
    /// The id of the aggregate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregate_id: Option<String>,
    /// The tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// The namespace. Without a column it is the adopted table's name in the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The topic. Without a column it is the name of the table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// The dedupe key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedupe_key: Option<String>,
    /// The ordering key: rows with equal values are delivered in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordering_key: Option<String>,
    /// The severity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<String>,
    /// A JSON object with headers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<String>,
    /// When the row was inserted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
    /// When the row was last changed; written with every change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<String>,
    /// When the event was delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processed_at: Option<String>,
    /// When the row is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<String>,
    /// The counter of attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<String>,
    /// What the counter counts.
    #[serde(default)]
    pub counts: Counts,
    /// The limit of retries of a row: one less than its attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<String>,
    /// The limit of attempts without such a column. Required if only the counter shows that a row is dead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// The last error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Is the error cleared when the event is delivered?
    #[serde(default)]
    pub clears_error: bool,
    /// The worker that has the row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locked_by: Option<String>,
    /// The end of its lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locked_until: Option<String>,
    /// The time of its lock, which lasts for [`stale`](Self::stale).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locked_at: Option<String>,
    /// How long a lock lasts after `locked_at`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "seconds")]
    pub stale: Option<Duration>,
    /// Is a row in progress shown as `processing`, with its lock, so that the system's own worker leaves it alone? Without it,
    /// yes if there is such a code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_processing: Option<bool>,
    /// Waits of rows that another program tried before the import, from `updated_at`. The first wait is for the first failure,
    /// and the last one for all later failures.
    #[serde(default, skip_serializing_if = "Delays::is_empty")]
    pub delays: Delays,
    /// The zone of timestamps without one.
    #[serde(default)]
    pub time_zone: Zone,
}

/// A column, or several that form one JSON object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Payload {
    /// `jsonb` stays JSON. Any other type is sent byte for byte.
    Column(String),
    /// One member per column, with the column's name.
    Columns(Vec<String>),
}

/// How a table shows the state of a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "state_by", deny_unknown_fields)]
#[derive(Default)]
pub enum Status {
    /// By `processed_at`, which is null until the event is delivered.
    #[default]
    Processed,
    /// By a code: a text, a number or a boolean.
    Code {
        /// The column.
        column: String,
        /// Not delivered yet.
        pending: String,
        /// Another program has the row.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        processing: Option<String>,
        /// Failed and to be retried, if it is not `pending`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failed: Option<String>,
        /// Delivered.
        delivered: String,
        /// Dead. Without it, a dead row keeps its code and is not imported again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dead: Option<String>,
    },
    /// By the row's presence: it is deleted when it is delivered.
    Presence,
}

/// The order in which rows are delivered. It holds for first attempts, unless the configuration says that a failing row
/// holds others back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeliveryOrder {
    /// Rows are sent concurrently.
    None,
    /// Rows of one ordering key follow the table's order. Without a column for the key it is the id of the aggregate.
    Key,
    /// All rows follow the table's order.
    Table,
}

/// What a counter counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Counts {
    /// Attempts that failed.
    #[default]
    Failures,
    /// Attempts that began.
    Claims,
}

/// What the id of a row's event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventId {
    /// The row's own id if it is a UUID, so that consumers keep seeing the ids they know; otherwise derived.
    #[default]
    Row,
    /// Derived from the adopted table's name and the row's id, so that no row can take the id of another event.
    Derived,
}

impl EventId {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
    fn is_row(&self) -> bool {
        *self == Self::Row
    }
}

/// Waits in seconds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Delays(pub Vec<u64>);

impl Delays {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A time zone of PostgreSQL, such as `UTC` or `Europe/Berlin`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Zone(pub String);

impl Default for Zone {
    fn default() -> Self {
        Self("UTC".to_owned())
    }
}

/// Why a layout does not fit its table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The table does not exist, or the role may not see it.
    #[error("table {0} does not exist, or this role may not see it")]
    NoTable(String),
    /// The column does not exist.
    #[error("`{key}` names the column \"{column}\", which {table} does not have{}", hint(.nearest.as_deref()))]
    NoColumn {
        /// The key of the layout.
        key: String,
        /// The column that it names.
        column: String,
        /// The table.
        table: String,
        /// The nearest column.
        nearest: Option<String>,
    },
    /// The type of a column does not fit its key.
    #[error("`{key}`: the column \"{column}\" is of type {found}; {wanted}")]
    Type {
        /// The key of the layout.
        key: String,
        /// The column.
        column: String,
        /// Its type.
        found: String,
        /// The type that it needs.
        wanted: &'static str,
    },
    /// A key is missing, or two keys contradict each other.
    #[error("{0}")]
    Impossible(String),
}

fn hint(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |near| format!("; did you mean \"{near}\"?"))
}

impl Layout {
    /// A table with these two columns.
    pub fn new(table: impl Into<String>, id: impl Into<String>, payload: Payload) -> Self {
        Self {
            table: table.into(),
            id: id.into(),
            event_id: EventId::default(),
            payload,
            content_type: None,
            order: Vec::new(),
            delivery_order: None,
            status: Status::default(),
            event_type: None,
            event_version: None,
            aggregate_type: None,
            aggregate_id: None,
            tenant_id: None,
            namespace: None,
            topic: None,
            dedupe_key: None,
            ordering_key: None,
            severity: None,
            headers: None,
            created_at: None,
            updated_at: None,
            processed_at: None,
            due_at: None,
            attempts: None,
            counts: Counts::default(),
            max_retries: None,
            max_attempts: None,
            error: None,
            clears_error: false,
            locked_by: None,
            locked_until: None,
            locked_at: None,
            stale: None,
            write_processing: None,
            delays: Delays::default(),
            time_zone: Zone::default(),
        }
    }

    /// Schema and table. Without a schema, `search_path` finds the table.
    pub fn names(&self) -> (Option<&str>, &str) {
        names(&self.table)
    }

    /// The order in which rows are delivered.
    pub fn delivers_by(&self) -> DeliveryOrder {
        self.delivery_order.unwrap_or(match self.ordering_key {
            Some(_) => DeliveryOrder::Key,
            None => DeliveryOrder::None,
        })
    }

    /// The code that shows a row in progress, if it is written.
    pub fn shows_processing(&self) -> Option<&str> {
        match &self.status {
            Status::Code { processing, .. } if self.write_processing != Some(false) => processing.as_deref(),
            Status::Code { .. } | Status::Processed | Status::Presence => None,
        }
    }

    /// Every named column, with its key.
    pub fn named(&self) -> Vec<(String, &str)> {
        let mut named = vec![("id".to_owned(), self.id.as_str())];
        match &self.payload {
            Payload::Column(column) => named.push(("payload".to_owned(), column)),
            Payload::Columns(columns) => {
                named.extend(
                    columns
                        .iter()
                        .map(|column| ("payload".to_owned(), column.as_str())),
                );
            }
        }
        named.extend(
            self.order
                .iter()
                .map(|column| ("order".to_owned(), column.as_str())),
        );
        if let Status::Code { column, .. } = &self.status {
            named.push(("status.column".to_owned(), column));
        }
        for (key, column) in [
            ("event_type", &self.event_type),
            ("event_version", &self.event_version),
            ("aggregate_type", &self.aggregate_type),
            ("aggregate_id", &self.aggregate_id),
            ("tenant_id", &self.tenant_id),
            ("namespace", &self.namespace),
            ("topic", &self.topic),
            ("dedupe_key", &self.dedupe_key),
            ("ordering_key", &self.ordering_key),
            ("severity", &self.severity),
            ("headers", &self.headers),
            ("created_at", &self.created_at),
            ("updated_at", &self.updated_at),
            ("processed_at", &self.processed_at),
            ("due_at", &self.due_at),
            ("attempts", &self.attempts),
            ("max_retries", &self.max_retries),
            ("error", &self.error),
            ("locked_by", &self.locked_by),
            ("locked_until", &self.locked_until),
            ("locked_at", &self.locked_at),
        ] {
            named.extend(column.as_deref().map(|column| (key.to_owned(), column)));
        }
        named
    }

    /// The column with the time since which a row is delivered.
    ///
    /// # Errors
    /// When no column has it.
    pub fn delivered_since(&self) -> Result<&str, LayoutError> {
        // The status never changes again, so neither does the time of the last change.
        let last = match self.status {
            Status::Code { .. } => self.updated_at.as_deref(),
            Status::Processed | Status::Presence => None,
        };
        self.processed_at.as_deref().or(last).ok_or_else(|| {
            let why = "`prune` needs `processed_at`, or `updated_at` with a `status`: no other column has the time of delivery";
            LayoutError::Impossible(why.to_owned())
        })
    }

    /// The code of dead rows, its column, and the column with the time since which a row is dead.
    ///
    /// # Errors
    /// When no column has it.
    pub fn dead_since(&self) -> Result<(&str, &str, &str), LayoutError> {
        match (&self.status, &self.updated_at) {
            (
                Status::Code {
                    column,
                    dead: Some(dead),
                    ..
                },
                Some(updated_at),
            ) => Ok((dead, column, updated_at)),
            _ => {
                let why = "`prune_dead` needs a `status` with a code for dead rows, and `updated_at`: no other columns show which \
                           rows are dead, and since when";
                Err(LayoutError::Impossible(why.to_owned()))
            }
        }
    }

    /// Checks the layout without the table.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check(&self) -> Result<(), LayoutError> {
        let impossible = |text: &str| Err(LayoutError::Impossible(text.to_owned()));
        match &self.status {
            Status::Processed if self.processed_at.is_none() => impossible(
                "no column shows the state of a row (name `processed_at`, or a `status` with its codes)",
            ),
            Status::Processed if self.attempts.is_some() && self.max_attempts.is_none() => impossible(
                "`max_attempts` is missing: only the counter shows that a row is dead, so it needs a limit",
            ),
            Status::Code {
                processing: Some(_), ..
            } if self.locked_until.is_none() && (self.locked_at.is_none() || self.stale.is_none()) => {
                impossible("`processing` has no lease (name `locked_until`, or `locked_at` and `stale`)")
            }
            Status::Processed | Status::Code { .. } | Status::Presence => {
                if self.write_processing == Some(true) && self.shows_processing().is_none() {
                    return impossible("`write_processing` needs a code (name `processing` in `status`)");
                }
                if !self.delays.is_empty() && (self.updated_at.is_none() || self.attempts.is_none()) {
                    return impossible("`delays` needs `updated_at` and `attempts` (name both columns)");
                }
                if self.content_type.as_deref().is_some_and(|it| !is_media_type(it)) {
                    return impossible(
                        "`content_type` is not a media type (use one such as \"text/plain; charset=utf-8\")",
                    );
                }
                let has_key = self.ordering_key.is_some() || self.aggregate_id.is_some();
                if self.delivery_order == Some(DeliveryOrder::Key) && !has_key {
                    return impossible(
                        "`delivery_order = \"key\"` needs a key (name `ordering_key` or `aggregate_id`)",
                    );
                }
                if self.max_retries.is_some() && self.namespace.is_some() {
                    return impossible(
                        "`max_retries` and `namespace` exclude each other: rows with their own limits have the table's name as \
                         their namespace",
                    );
                }
                Ok(())
            }
        }
    }
}

/// Is it valid in a header?
fn is_media_type(text: &str) -> bool {
    let is_plain = |c: char| c == ' ' || c.is_ascii_graphic();
    let (kind, rest) = text.split_once('/').unwrap_or_default();
    let is_word = |text: &str| text.starts_with(|c: char| c.is_ascii_alphanumeric());
    text.len() <= MAX_NAME
        && text.chars().all(is_plain)
        && is_word(kind)
        && is_word(rest)
        && !kind.contains(' ')
}

pub(super) fn names(table: &str) -> (Option<&str>, &str) {
    match table.split_once('.') {
        Some((schema, table)) => (Some(schema), table),
        None => (None, table),
    }
}

/// A duration as whole seconds.
mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    #[allow(clippy::ref_option, reason = "serde's signature")]
    pub(super) fn serialize<S: Serializer>(value: &Option<Duration>, out: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => out.serialize_u64(value.as_secs()),
            None => out.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(Duration::from_secs))
    }
}

#[cfg(test)]
mod tests;
