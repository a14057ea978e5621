//! The audit: who changed what, and why.
//!
//! A store writes the line in the transaction of the change, so that neither exists without the other. A call writes one line,
//! however many rows it changed, and none if it changed nothing. Payloads, headers, error texts and secrets are never part of
//! a line.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::actor::{Actor, Kind, Reach};
use crate::quotas::Holder;
use crate::state::Status;
use pillarbox::saga::Ask;

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// An operator made events due.
    RetryEvents,
    /// An operator let keys pass their first events.
    SkipEvents,
    /// An operator deleted events.
    DeleteEvents,
    /// An operator restored events from an archive.
    RestoreEvents,
    /// An operator paused a destination.
    PauseDestination,
    /// A destination asked for no more events.
    DisableDestination,
    /// An operator resumed a destination.
    ResumeDestination,
    /// An operator asked a saga to send its command again.
    ResumeSaga,
    /// An operator asked a saga to undo its steps.
    CompensateSaga,
    /// An operator made rows of an adopted table due that could not be imported.
    RetryImports,
    /// The owner granted a role its duty.
    Grant,
    /// The owner took a duty from a role.
    Revoke,
    /// The owner gave a role or a tenant a quota, or changed it.
    SetQuota,
    /// The owner removed a quota.
    RemoveQuota,
    /// The schema was migrated, or given to another owner.
    Migrate,
}

impl Action {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::RetryEvents,
        Self::SkipEvents,
        Self::DeleteEvents,
        Self::RestoreEvents,
        Self::PauseDestination,
        Self::DisableDestination,
        Self::ResumeDestination,
        Self::ResumeSaga,
        Self::CompensateSaga,
        Self::RetryImports,
        Self::Grant,
        Self::Revoke,
        Self::SetQuota,
        Self::RemoveQuota,
        Self::Migrate,
    ];

    /// Its name in a line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RetryEvents => "events.retry",
            Self::SkipEvents => "events.skip",
            Self::DeleteEvents => "events.delete",
            Self::RestoreEvents => "events.restore",
            Self::PauseDestination => "destinations.pause",
            Self::DisableDestination => "destinations.disable",
            Self::ResumeDestination => "destinations.resume",
            Self::ResumeSaga => "sagas.resume",
            Self::CompensateSaga => "sagas.compensate",
            Self::RetryImports => "imports.retry",
            Self::Grant => "grant",
            Self::Revoke => "revoke",
            Self::SetQuota => "quotas.set",
            Self::RemoveQuota => "quotas.rm",
            Self::Migrate => "migrate",
        }
    }
}

impl From<Ask> for Action {
    fn from(ask: Ask) -> Self {
        match ask {
            Ask::Resume => Self::ResumeSaga,
            Ask::Compensate => Self::CompensateSaga,
        }
    }
}

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AuditRecord {
    /// The order of writing. Numbers may be missing.
    pub seq: i64,
    /// When the transaction of the change began.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// Who.
    pub subject: String,
    /// `operator`, `service` or `worker`.
    pub kind: String,
    /// The database role of the session. SQLite has none.
    pub role: Option<String>,
    /// The tenant for which the actor acted; `None` for an actor of the whole outbox.
    pub tenant_id: Option<Uuid>,
    /// What was done: see [`Action::as_str`].
    pub action: String,
    /// What was changed: ids of rows, or names. At most [`MOST_OBJECTS`].
    pub objects: Vec<String>,
    /// How many were changed.
    pub count: u64,
    /// What they were before: for events, how many were in each status.
    pub before: Option<Value>,
    /// What they are now.
    pub after: Option<Value>,
    /// Why.
    pub reason: Option<String>,
}

/// Which lines to list. Newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditFilter {
    /// By whom.
    pub subject: Option<String>,
    /// What was done.
    pub action: Option<String>,
    /// To which row, destination, saga or role.
    pub object: Option<String>,
    /// Not before this time.
    pub since: Option<OffsetDateTime>,
    /// Before this time.
    pub until: Option<OffsetDateTime>,
    /// Only lines before this `seq`: the next page.
    pub before: Option<i64>,
    /// How many at the most: 50 if zero, and never more than [`MOST_LINES`].
    pub limit: usize,
}

impl AuditFilter {
    /// How many lines a page has at the most.
    pub(crate) fn page(&self) -> usize {
        match self.limit {
            0 => 50,
            limit => limit.min(MOST_LINES),
        }
    }
}

/// Up to how many lines a page has.
pub const MOST_LINES: usize = 1000;

/// Up to how many objects a line names. Further ones are only counted.
pub const MOST_OBJECTS: usize = 1000;

/// How long a subject or an object may be, in bytes, and how long a reason.
const MAX_NAME: usize = 1024;
const MAX_REASON: usize = 2048;

/// The text without NUL, cut to fit.
fn cut(text: &str, max: usize) -> String {
    let mut text = text.replace('\0', "\u{FFFD}");
    if text.len() > max {
        text.truncate(text.floor_char_boundary(max - '…'.len_utf8()));
        text.push('…');
    }
    text
}

/// A line before it is written.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) subject: String,
    pub(crate) kind: Kind,
    pub(crate) tenant: Option<Uuid>,
    pub(crate) action: Action,
    pub(crate) objects: Vec<String>,
    pub(crate) count: usize,
    pub(crate) before: Option<Value>,
    pub(crate) after: Option<Value>,
    pub(crate) reason: Option<String>,
}

/// A row that was changed, and the status that it had.
pub(crate) type Changed = (Uuid, String);

impl Line {
    /// The actor did this to these objects.
    pub(crate) fn of(actor: &Actor, action: Action, objects: &[impl AsRef<str>]) -> Self {
        let named = objects.iter().take(MOST_OBJECTS);
        Self {
            subject: cut(&actor.subject, MAX_NAME),
            kind: actor.kind,
            tenant: actor.tenant(),
            action,
            objects: named.map(|object| cut(object.as_ref(), MAX_NAME)).collect(),
            count: objects.len(),
            before: None,
            after: None,
            reason: actor.reason.as_deref().map(|reason| cut(reason, MAX_REASON)),
        }
    }

    /// An operator restored rows from an archive, which have these ids.
    pub(crate) fn restored(actor: &Actor, ids: &[Uuid]) -> Self {
        let ids: Vec<String> = ids.iter().map(Uuid::to_string).collect();
        Self::of(actor, Action::RestoreEvents, &ids)
    }

    /// The actor did this to rows, which have this status now or are gone.
    pub(crate) fn of_rows(actor: &Actor, action: Action, rows: &[Changed], now: Option<&Status>) -> Self {
        let ids: Vec<String> = rows.iter().map(|(id, _)| id.to_string()).collect();
        let mut before: BTreeMap<String, usize> = BTreeMap::new();
        for (_, status) in rows {
            *before.entry(cut(status, MAX_NAME)).or_default() += 1;
        }
        Self {
            before: Some(json!(before)),
            after: now.map(|status| json!({ status.as_str(): rows.len() })),
            ..Self::of(actor, action, &ids)
        }
    }

    pub(crate) fn change(self, before: Value, after: Value) -> Self {
        Self {
            before: Some(before),
            after: Some(after),
            ..self
        }
    }

    /// A worker disabled a destination. The answer of the receiver may have anything in it, so it is left out.
    pub(crate) fn disabled(worker: Uuid, destination: &str) -> Self {
        let reason = "the destination asked for no more events".to_owned();
        let actor = Actor::new(Kind::Worker, worker.to_string(), Reach::System, []);
        Self::of(&actor.because(reason), Action::DisableDestination, &[destination])
            .change(json!({ "disabled": false }), json!({ "disabled": true }))
    }

    /// An operator paused a destination. The reason of the pause is the reason.
    pub(crate) fn paused(actor: &Actor, destination: &str, reason: &str) -> Self {
        let actor = actor.clone().because(reason);
        Self::of(&actor, Action::PauseDestination, &[destination])
            .change(json!({ "paused": false }), json!({ "paused": true }))
    }

    /// An operator resumed a destination, which was paused or disabled.
    pub(crate) fn resumed(actor: &Actor, destination: &str, was_disabled: bool) -> Self {
        let state = if was_disabled { "disabled" } else { "paused" };
        Self::of(actor, Action::ResumeDestination, &[destination])
            .change(json!({ state: true }), json!({ state: false }))
    }

    /// An operator sent a request to a saga, by this event.
    pub(crate) fn asked(actor: &Actor, name: &str, id: &str, ask: Ask, event: Uuid) -> Self {
        Self {
            after: Some(json!({ "event": event })),
            ..Self::of(actor, ask.into(), &[format!("{name} {id}")])
        }
    }

    /// A role was granted its duty, within these bounds. Before, it had others or none.
    pub(crate) fn granted(actor: &Actor, role: &str, before: Option<Value>, after: Value) -> Self {
        Self {
            before,
            after: Some(after),
            ..Self::of(actor, Action::Grant, &[role])
        }
    }

    /// A duty was taken from a role, with the bounds that it had.
    pub(crate) fn revoked(actor: &Actor, role: &str, before: Value) -> Self {
        Self {
            before: Some(before),
            ..Self::of(actor, Action::Revoke, &[role])
        }
    }

    /// A holder's quota was set or removed.
    pub(crate) fn quota(actor: &Actor, holder: &Holder, before: Option<u64>, after: Option<u64>) -> Self {
        let action = match after {
            Some(_) => Action::SetQuota,
            None => Action::RemoveQuota,
        };
        let value = |max_pending: Option<u64>| max_pending.map(|it| json!({ "max_pending": it }));
        Self {
            before: value(before),
            after: value(after),
            ..Self::of(actor, action, &[holder.to_string()])
        }
    }

    /// The schema was given to another owner.
    pub(crate) fn given(actor: &Actor, schema: &str, from: &str, to: &str) -> Self {
        Self::of(actor, Action::Migrate, &[schema]).change(json!({ "owner": from }), json!({ "owner": to }))
    }

    /// Row-level security was switched on or off.
    pub(crate) fn row_security(actor: &Actor, schema: &str, from: bool, to: bool) -> Self {
        let value = |on: bool| json!({ "row_security": on });
        Self::of(actor, Action::Migrate, &[schema]).change(value(from), value(to))
    }

    /// The schema was migrated.
    pub(crate) fn migrated(actor: &Actor, schema: &str, from: i32, to: i32) -> Self {
        Self::of(actor, Action::Migrate, &[schema])
            .change(json!({ "version": from }), json!({ "version": to }))
    }
}

/// A program that migrates on its own, such as an application at its start.
pub(crate) fn program() -> Actor {
    Actor::new(Kind::Service, "pillarbox", Reach::System, [])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alice() -> Actor {
        Actor::new(Kind::Operator, "alice", Reach::System, [])
    }

    #[test]
    fn a_line_names_a_thousand_objects_and_counts_all() {
        let rows: Vec<Changed> = (0..1500)
            .map(|n| (Uuid::from_u128(n), "dead".to_owned()))
            .collect();
        let line = Line::of_rows(&alice(), Action::RetryEvents, &rows, Some(&Status::Pending));
        assert_eq!((line.objects.len(), line.count), (MOST_OBJECTS, 1500));
        assert_eq!(line.before, Some(json!({ "dead": 1500 })));
        assert_eq!(line.after, Some(json!({ "pending": 1500 })));
    }

    #[test]
    fn every_text_fits_its_column() {
        let long = "ä\0".repeat(5000);
        let actor = Actor::new(Kind::Operator, long.clone(), Reach::System, []).because(long.clone());
        let line = Line::of(&actor, Action::Grant, &[long]);
        for (text, max) in [
            (line.subject, MAX_NAME),
            (line.objects[0].clone(), MAX_NAME),
            (line.reason.unwrap(), MAX_REASON),
        ] {
            assert!(
                text.len() <= max && text.ends_with('…') && !text.contains('\0'),
                "{text}"
            );
        }
    }

    #[test]
    fn every_action_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<&str> =
            Action::ALL.iter().map(|action| action.as_str()).collect();
        assert_eq!(names.len(), Action::ALL.len());
    }
}
