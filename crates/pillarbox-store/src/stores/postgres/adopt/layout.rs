//! What a table looks like that somebody else designed.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use pillarbox::validate::MAX_NAME;

/// A table that holds an outbox: which column is what, and how its state is told. Everything that is not there is left
/// out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    /// The table, with its schema if it needs one: `outbox.outbox_messages`.
    pub table: String,
    /// The column that identifies a row.
    pub id: String,
    /// The column with the payload, or several that make it up as one JSON object.
    pub payload: Payload,
    /// What the payload is, as a media type. Without it text is taken for JSON, and bytes are bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// In which order rows are taken: columns, the first one first. Equal rows follow their id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub order: Vec<String>,
    /// How the table tells what became of a row.
    #[serde(default)]
    pub status: Status,
    /// What kind of thing happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    /// The version of the payload's shape.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_version: Option<String>,
    /// What kind of thing it happened to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregate_type: Option<String>,
    /// Which one it happened to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregate_id: Option<String>,
    /// Whose it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// Who publishes; the source's name if no column says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// What is published; the table's name if no column says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// What a consumer recognises a second delivery by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedupe_key: Option<String>,
    /// Rows with equal values are sent one after another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordering_key: Option<String>,
    /// How bad it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<String>,
    /// A JSON object that is sent along.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<String>,
    /// When the row was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
    /// When the row was last changed; written with every change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<String>,
    /// When the event was delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processed_at: Option<String>,
    /// Not before this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<String>,
    /// The counter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<String>,
    /// What the counter counts.
    #[serde(default)]
    pub counts: Counts,
    /// The column that limits the retries of its row: one attempt less than there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<String>,
    /// How many attempts there are where no column says so; needed if only the counter tells that a row is given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// The last error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Is the error cleared when the event is delivered after all?
    #[serde(default)]
    pub clears_error: bool,
    /// Who works on the row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locked_by: Option<String>,
    /// Until when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locked_until: Option<String>,
    /// Or since when; over after [`stale`](Self::stale).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locked_at: Option<String>,
    /// How long after `locked_at` a row in processing is anybody's again.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "seconds")]
    pub stale: Option<Duration>,
    /// How long rows wait that somebody else tried before, counted from `updated_at`: the first wait after the first
    /// failure; the last one for ever after.
    #[serde(default, skip_serializing_if = "Delays::is_empty")]
    pub delays: Delays,
    /// The zone of timestamps that have none.
    #[serde(default)]
    pub time_zone: Zone,
}

/// A column, or several that make up one JSON object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Payload {
    /// `jsonb` stays JSON; any other type is sent byte for byte.
    Column(String),
    /// One member for each column, named as it is.
    Columns(Vec<String>),
}

/// How a table tells what became of a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "state_by", deny_unknown_fields)]
#[derive(Default)]
pub enum Status {
    /// By the time in `processed_at`: null until the event was delivered.
    #[default]
    Processed,
    /// By a code, of text or a number.
    Code {
        /// The column.
        column: String,
        /// Not sent yet.
        pending: String,
        /// Somebody is at work.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        processing: Option<String>,
        /// Tried, and to be tried again, if that is not `pending`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failed: Option<String>,
        /// Sent.
        delivered: String,
        /// Given up on. Without it a row that is given up on stays what it was, and is not taken again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dead: Option<String>,
    },
    /// By being there: a row is deleted when it was sent.
    Presence,
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

/// Waits, one after another.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Delays(pub Vec<u64>);

impl Delays {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A time zone as PostgreSQL knows it, such as `UTC` or `Europe/Berlin`.
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
    /// There is no such table, or the role may not see it.
    #[error("there is no table {0}, or this role may not see it")]
    NoTable(String),
    /// There is no such column.
    #[error("`{key}` names the column \"{column}\", which {table} does not have{}", hint(.nearest.as_deref()))]
    NoColumn {
        /// Which key of the layout.
        key: String,
        /// What it says.
        column: String,
        /// The table.
        table: String,
        /// The column that was meant, perhaps.
        nearest: Option<String>,
    },
    /// A column has a type that cannot be what the layout says.
    #[error("`{key}`: the column \"{column}\" is of type {found}; {wanted}")]
    Type {
        /// Which key of the layout.
        key: String,
        /// The column.
        column: String,
        /// Its type.
        found: String,
        /// What it should be.
        wanted: &'static str,
    },
    /// Something is missing or contradicts something else.
    #[error("{0}")]
    Impossible(String),
}

fn hint(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |near| format!("; did you mean \"{near}\"?"))
}

impl Layout {
    /// A table with these two columns and nothing else.
    pub fn new(table: impl Into<String>, id: impl Into<String>, payload: Payload) -> Self {
        Self {
            table: table.into(),
            id: id.into(),
            payload,
            content_type: None,
            order: Vec::new(),
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
            delays: Delays::default(),
            time_zone: Zone::default(),
        }
    }

    /// Schema and table. Without a schema it is found as any name is.
    pub fn names(&self) -> (Option<&str>, &str) {
        names(&self.table)
    }

    /// Every column that is named, by the key that names it.
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

    /// What cannot be, whatever the table looks like.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check(&self) -> Result<(), LayoutError> {
        let impossible = |text: &str| Err(LayoutError::Impossible(text.to_owned()));
        match &self.status {
            Status::Processed if self.processed_at.is_none() => impossible(
                "nothing tells what became of a row: name `processed_at`, or a `status` with its codes",
            ),
            Status::Processed if self.attempts.is_some() && self.max_attempts.is_none() => impossible(
                "`max_attempts` is missing: only the counter tells that a row is given up on, so it needs a limit",
            ),
            Status::Code {
                processing: Some(_), ..
            } if self.locked_until.is_none() && (self.locked_at.is_none() || self.stale.is_none()) => {
                impossible("a row in processing has no end: name `locked_until`, or `locked_at` and `stale`")
            }
            Status::Processed | Status::Code { .. } | Status::Presence => {
                if !self.delays.is_empty() && (self.updated_at.is_none() || self.attempts.is_none()) {
                    return impossible("`delays` count from `updated_at` by `attempts`: name both columns");
                }
                if self.content_type.as_deref().is_some_and(|it| !is_media_type(it)) {
                    return impossible(
                        "`content_type` is no media type; say one such as \"text/plain; charset=utf-8\"",
                    );
                }
                if self.max_retries.is_some() && self.namespace.is_some() {
                    return impossible(
                        "`max_retries` and `namespace` cannot both be columns: rows with limits of their own are known by \
                         the table's name, which is their namespace",
                    );
                }
                Ok(())
            }
        }
    }
}

/// Can it stand in a header?
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
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_called_by_a_media_type_or_not_at_all() {
        let mut layout = Layout::new("outbox", "id", Payload::Column("payload".to_owned()));
        layout.processed_at = Some("sent_at".to_owned());
        for good in [
            "text/plain; charset=utf-8",
            "application/vnd.shop+json",
            "application/x-protobuf",
        ] {
            layout.content_type = Some(good.to_owned());
            assert_eq!(layout.check(), Ok(()), "{good}");
        }
        for bad in [
            "",
            "text",
            "/plain",
            "text/",
            "text /plain",
            "text/plain\r\nx: y",
            "text/pläin",
        ] {
            layout.content_type = Some(bad.to_owned());
            let refused = layout.check().expect_err(bad).to_string();
            assert!(
                refused.starts_with("`content_type` is no media type"),
                "{refused}"
            );
        }
    }

    #[test]
    fn rows_with_limits_of_their_own_cannot_have_namespaces_of_their_own() {
        let mut layout = Layout::new("outbox", "id", Payload::Column("payload".to_owned()));
        layout.processed_at = Some("sent_at".to_owned());
        layout.max_retries = Some("max_retries".to_owned());
        assert_eq!(layout.check(), Ok(()));
        layout.namespace = Some("namespace".to_owned());
        let refused = layout
            .check()
            .expect_err("nobody could tell whose limit it is")
            .to_string();
        assert!(refused.starts_with("`max_retries` and `namespace`"), "{refused}");
    }
}
