//! Finds the role of a column by its name and type.
//!
//! Names are compared without case and underscores, so that `RetryCount` is `retry_count`.

use pillarbox_store::stores::postgres::adopt::Column;

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Number,
    Time,
    Json,
    Boolean,
    Other,
}

/// The kind of a PostgreSQL type. An enum is `Other`.
pub(crate) fn kind(column: &Column) -> Kind {
    let name = column.kind.as_str();
    match name {
        "smallint" | "integer" | "bigint" => Kind::Number,
        "json" | "jsonb" => Kind::Json,
        "boolean" => Kind::Boolean,
        "text" | "citext" | "uuid" => Kind::Text,
        _ if name.starts_with("character") => Kind::Text,
        _ if name.starts_with("timestamp") => Kind::Time,
        _ => Kind::Other,
    }
}

/// The kind that a key of the layout needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Texts,
    Numbers,
    Times,
    Objects,
}

impl Wanted {
    fn allows(self, kind: Kind) -> bool {
        match self {
            // A number or an enum can be cast to text.
            Self::Texts => matches!(kind, Kind::Text | Kind::Number | Kind::Other),
            Self::Numbers => kind == Kind::Number,
            Self::Times => kind == Kind::Time,
            Self::Objects => kind == Kind::Json,
        }
    }
}

/// The keys of a layout, in the order in which they choose a column. Of the names, the usual one comes first.
const NAMES: &[(&str, Wanted, &[&str])] = &[
    (
        "event_type",
        Wanted::Texts,
        &["eventtype", "type", "eventname", "messagetype", "kind", "name"],
    ),
    (
        "event_version",
        Wanted::Numbers,
        &["eventversion", "version", "schemaversion"],
    ),
    (
        "aggregate_type",
        Wanted::Texts,
        &["aggregatetype", "entitytype", "streamtype", "aggregate"],
    ),
    (
        "aggregate_id",
        Wanted::Texts,
        &["aggregateid", "entityid", "streamid", "aggregatekey"],
    ),
    (
        "tenant_id",
        Wanted::Texts,
        &["tenantid", "tenant", "organizationid", "orgid"],
    ),
    ("namespace", Wanted::Texts, &["namespace"]),
    ("topic", Wanted::Texts, &["topic", "destinationtopic"]),
    (
        "dedupe_key",
        Wanted::Texts,
        &[
            "dedupekey",
            "idempotencykey",
            "deduplicationkey",
            "deduplicationid",
        ],
    ),
    ("ordering_key", Wanted::Texts, &["orderingkey", "partitionkey"]),
    ("severity", Wanted::Texts, &["severity"]),
    (
        "headers",
        Wanted::Objects,
        &["headers", "messageheaders", "metadata"],
    ),
    (
        "created_at",
        Wanted::Times,
        &[
            "createdat",
            "occurredonutc",
            "occurredon",
            "occurredat",
            "createdonutc",
            "createdon",
            "created",
            "insertedat",
        ],
    ),
    (
        "updated_at",
        Wanted::Times,
        &[
            "updatedat",
            "modifiedat",
            "updatedonutc",
            "updatedon",
            "lastmodified",
        ],
    ),
    (
        "processed_at",
        Wanted::Times,
        &[
            "processedat",
            "processedonutc",
            "processedon",
            "sentat",
            "publishedat",
            "deliveredat",
            "dispatchedat",
            "completedat",
            "senton",
            "publishedon",
        ],
    ),
    (
        "due_at",
        Wanted::Times,
        &[
            "nextattemptat",
            "scheduledat",
            "nextretryat",
            "dueat",
            "availableat",
            "visibleat",
        ],
    ),
    (
        "attempts",
        Wanted::Numbers,
        &[
            "attempts",
            "retrycount",
            "retries",
            "attemptcount",
            "tries",
            "failures",
        ],
    ),
    ("max_retries", Wanted::Numbers, &["maxretries"]),
    (
        "error",
        Wanted::Texts,
        &["error", "lasterror", "errormessage", "failurereason", "exception"],
    ),
    ("locked_by", Wanted::Texts, &["lockedby", "claimedby", "workerid"]),
    (
        "locked_until",
        Wanted::Times,
        &["lockeduntil", "leaseuntil", "leaseexpiresat", "lockexpiresat"],
    ),
    ("locked_at", Wanted::Times, &["lockedat", "claimedat"]),
];

const PAYLOADS: &[&str] = &[
    "payload",
    "content",
    "eventdata",
    "eventpayload",
    "data",
    "body",
    "message",
    "json",
];
const STATUSES: &[&str] = &["status", "state", "outboxstatus", "processingstatus"];
const FLAGS: &[&str] = &[
    "processed",
    "sent",
    "published",
    "delivered",
    "dispatched",
    "isprocessed",
    "issent",
    "ispublished",
];

fn plain(name: &str) -> String {
    name.to_lowercase().replace(['_', '-', ' '], "")
}

fn named<'a>(columns: &'a [Column], names: &[&str], fits: impl Fn(&Column) -> bool) -> Option<&'a Column> {
    let called = |name: &&str| columns.iter().find(|it| plain(&it.name) == **name && fits(it));
    names.iter().find_map(called)
}

/// The payload column, and why it was chosen.
pub(crate) fn payload(columns: &[Column]) -> Option<(&Column, &'static str)> {
    let holds =
        |it: &Column| matches!(kind(it), Kind::Json | Kind::Text) && it.kind != "uuid" || it.kind == "bytea";
    if let Some(column) = named(columns, PAYLOADS, holds) {
        return Some((column, "by its name"));
    }
    let mut json = columns.iter().filter(|it| kind(it) == Kind::Json);
    match (json.next(), json.next()) {
        (Some(only), None) => Some((only, "the only JSON column")),
        (Some(_), Some(_)) | (None, _) => None,
    }
}

/// The column with a status code.
pub(crate) fn status(columns: &[Column]) -> Option<&Column> {
    let codes = |it: &Column| matches!(kind(it), Kind::Text | Kind::Number | Kind::Other);
    named(columns, STATUSES, codes)
}

/// The boolean column that is true for delivered rows.
pub(crate) fn flag(columns: &[Column]) -> Option<&Column> {
    named(columns, FLAGS, |it| kind(it) == Kind::Boolean)
}

/// All other keys with their columns. A column has one role; those in `taken` have one already.
pub(crate) fn others<'a>(columns: &'a [Column], taken: &[&str]) -> Vec<(&'static str, &'a Column)> {
    let mut taken: Vec<String> = taken.iter().map(|name| (*name).to_owned()).collect();
    let mut found = Vec::new();
    for (key, wanted, names) in NAMES {
        let fits = |it: &Column| wanted.allows(kind(it)) && !taken.contains(&it.name);
        if let Some(column) = named(columns, names, fits) {
            taken.push(column.name.clone());
            found.push((*key, column));
        }
    }
    found
}
