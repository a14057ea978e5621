//! Shows rows in progress as `processing`, with a lock, so that the system's own worker leaves them alone.
//!
//! A row is locked when it is imported. The importer renews the lock while the row is in progress. A row in backoff shows its own
//! code and its due time, and is locked again before it is due.
//!
//! **If we die here** the lock expires, and the system's own worker may take the row. Its change is detected then.

use super::literal;
use super::typed_layout::TypedLayout;
use crate::stores::postgres::adopt::inspect::{quoted, quoted_table};
use crate::stores::postgres::adopt::layout::Status;

/// How long a lock lasts, if the table does not say it. The importer renews it after half of the time.
const LOCK: u64 = 600;
/// A row that is due within this time is locked. The importer looks for such rows every two seconds.
const SOON: u64 = 15;

impl TypedLayout<'_> {
    pub(super) fn lock_seconds(&self) -> u64 {
        self.layout.stale.map_or(LOCK, |stale| stale.as_secs()).max(2)
    }

    /// The columns of a locked row: each with its value. `by` is the worker.
    fn locked_columns(&self, code: &str, by: &str) -> Vec<(String, String)> {
        let layout = self.layout;
        let mut columns = Vec::new();
        if let Status::Code { column, .. } = &layout.status {
            columns.push((column.clone(), literal(code)));
        }
        if let Some(column) = &layout.locked_by
            && self.can_name_worker(column)
        {
            columns.push((column.clone(), format!("{by}::text")));
        }
        let until = format!("now() + interval '{} seconds'", self.lock_seconds());
        for (column, time) in [
            (&layout.locked_until, until.as_str()),
            (&layout.locked_at, "now()"),
            (&layout.updated_at, "now()"),
        ] {
            if let Some(column) = column {
                columns.push((column.clone(), self.write_time(column, time)));
            }
        }
        columns
    }

    fn can_name_worker(&self, column: &str) -> bool {
        let kind = self.kind(column);
        kind == "uuid" || kind == "text" || kind.starts_with("character varying")
    }

    fn set_locked(&self, code: &str, by: &str) -> String {
        let columns = self.locked_columns(code, by).into_iter();
        let set: Vec<String> = columns
            .map(|(column, value)| format!("{} = ({value})::{}", quoted(&column), self.kind(&column)))
            .collect();
        set.join(", ")
    }

    /// The imported rows, with the fingerprints that their mapping rows record. Locks them if the table shows it. $3 the worker
    pub(super) fn take_imported(&self) -> String {
        match self.layout.shows_processing() {
            None => "select id, row_id, tenant_id, is_mapped, fingerprint from numbered
  where $3::uuid is not null and id in (select id from imported)"
                .to_owned(),
            Some(code) => format!(
                "update {table} s set {set} from numbered n
  where $3::uuid is not null and {id} = any(array(select row_id::{kind} from numbered)) and {id_text} = n.row_id
    and n.id in (select id from imported)
  returning n.id, n.row_id, n.tenant_id, n.is_mapped, {fingerprint} as fingerprint",
                table = quoted_table(&self.layout.table),
                set = self.set_locked(code, "$3::uuid"),
                id = self.id(),
                kind = self.kind(&self.layout.id),
                id_text = self.id_text(),
                fingerprint = self.fingerprint(),
            ),
        }
    }

    /// Is a row in backoff due so late that it shows its own code meanwhile? Otherwise it stays locked.
    pub(super) fn is_due_later(&self) -> String {
        match &self.layout.due_at {
            Some(_) => format!("coalesce(f.due_at > now() + interval '{SOON} seconds', false)"),
            None => "false".to_owned(),
        }
    }

    /// Renews the locks of rows in progress, and locks those in backoff that are due soon. $2 the worker
    ///
    /// A row that another session holds, and one that others changed, is left alone.
    pub(super) fn renew_locks(&self) -> Option<String> {
        let code = self.layout.shows_processing()?;
        let Status::Code { column, .. } = &self.layout.status else {
            return None;
        };
        let is_ours = format!("s.{} = {}", quoted(column), literal(code));
        let half = self.lock_seconds() / 2;
        let is_old = match (&self.layout.locked_until, &self.layout.locked_at) {
            (Some(until), _) => {
                let time = self.write_time(until, &format!("now() + interval '{half} seconds'"));
                format!("coalesce(s.{} < {time}, true)", quoted(until))
            }
            (None, Some(at)) => {
                let time = self.write_time(at, &format!("now() - interval '{half} seconds'"));
                format!("coalesce(s.{} < {time}, true)", quoted(at))
            }
            (None, None) => return None,
        };
        let is_due = match &self.layout.due_at {
            Some(due) => {
                let soon = self.write_time(due, &format!("now() + interval '{SOON} seconds'"));
                format!("coalesce(s.{} <= {soon}, true)", quoted(due))
            }
            None => "true".to_owned(),
        };
        Some(format!(
            "with ours as materialized (
  select a.event_id, s.row_id
  from pillarbox.adopted a cross join lateral (
    select {id_text} as row_id from {table} s
    where {is_its_row} and {fingerprint} = a.fingerprint and case when {is_ours} then {is_old} else {is_due} end
    for no key update skip locked
  ) as s
  where $2::uuid is not null and a.adopted_table = $1 and not a.ended and not a.write_back_pending
  for update of a skip locked
), locked as (
  update {table} s set {set} from ours o
  where {id} = any(array(select row_id::{kind} from ours)) and {id_text} = o.row_id
  returning o.event_id, {fingerprint} as fingerprint
)
update pillarbox.adopted a set fingerprint = l.fingerprint
from locked l where a.event_id = l.event_id and a.fingerprint <> l.fingerprint",
            id_text = self.id_text(),
            table = quoted_table(&self.layout.table),
            is_its_row = self.is_its_row("a"),
            fingerprint = self.fingerprint(),
            set = self.set_locked(code, "$2::uuid"),
            id = self.id(),
            kind = self.kind(&self.layout.id),
        ))
    }
}
