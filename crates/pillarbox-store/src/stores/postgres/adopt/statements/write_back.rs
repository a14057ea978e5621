//! Writes the state of events back to the table's own columns.

use super::literal;
use super::typed_layout::TypedLayout;
use crate::stores::postgres::adopt::ErrorText;
use crate::stores::postgres::adopt::inspect::{quoted, quoted_table};
use crate::stores::postgres::adopt::layout::{Counts, Status};

/// The error of a row whose event an operator deleted before it failed.
const DELETED: &str = "deleted by an operator";

impl TypedLayout<'_> {
    pub(super) fn cancel_write_back(&self) -> String {
        format!(
            "update pillarbox.adopted a set write_back_pending = false, rejected = false
where a.event_id = any($1) and a.write_back_pending and (select true from {table} s where {is_its_row} limit 1) is null",
            table = quoted_table(&self.layout.table),
            is_its_row = self.is_its_row("a"),
        )
    }

    /// Each event looks up its row and its family (lateral). For a thousand rows the planner would otherwise read the whole
    /// table. `(select $1)` hides the number of events from it, so that mapping rows are looked up too.
    ///
    /// An event without native rows is dead if its mapping row says that it ended. Otherwise no route matched, and it counts
    /// as delivered.
    ///
    /// An event whose write-back the table rejected stays pending. Only the importer tries it again ($2). Otherwise one such
    /// event would fail every settlement that it is part of.
    ///
    /// The `ctid` of a row leads from its lock to its update. A row that changed between the read and the lock has a new
    /// `ctid`, which this statement does not see. Its write-back stays pending, as for a row that others hold.
    pub(super) fn write_back(&self, error_text: ErrorText) -> String {
        format!(
            "with family as materialized (
  select n.event_id, n.row_id, s.place, m.members, m.status, m.attempts, m.due_at, e.error, {is_due} as is_due
  from unnest((select $1::uuid[])) as given (event_id) cross join lateral (
    select a.event_id, a.row_id, a.fingerprint, a.ended from pillarbox.adopted a
    where a.event_id = given.event_id and (not a.rejected or $2)
  ) as n
  left join lateral (
    select s.ctid as place, {fingerprint} as fingerprint from {table} s where {is_its_row} for no key update skip locked
  ) as s on true cross join lateral (
    select count(*) as members,
      case when bool_or(status not in ('pending', 'dead', 'delivered')) then 'processing'
        when bool_or(status = 'pending') then 'pending' when bool_or(status = 'dead') then 'dead'
        when count(*) = 0 and n.ended then 'dead' else 'delivered' end as status,
      max(attempts) as attempts, min(next_attempt_at) filter (where status = 'pending') as due_at,
      max(last_error) as error
    from ({members}) as member
  ) as m cross join lateral (
    select {shown} as error
    from (select case when m.members > 1 then {error} else m.error end as error offset 0) as whole
  ) as e
), written as (
  {write}
  returning f.event_id, f.status, {fingerprint} as fingerprint
), mapped as (
  update pillarbox.adopted a
  set fingerprint = w.fingerprint, write_back_pending = false, rejected = false, tried_at = '-infinity',
    ended = w.status <> 'pending'
  from written w where w.status <> 'delivered' and a.event_id = w.event_id
), unmapped as (
  delete from pillarbox.adopted a using written w where w.status = 'delivered' and a.event_id = w.event_id
), left_alone as (
  update pillarbox.adopted a
  set write_back_pending = f.place is null or coalesce(f.is_due, false),
    rejected = a.rejected and (f.place is null or coalesce(f.is_due, false)), ended = {ended}
  from family f where a.event_id = f.event_id and f.event_id not in (select event_id from written)
)
select count(*) from written",
            table = quoted_table(&self.layout.table),
            is_its_row = self.is_its_row("n"),
            fingerprint = self.fingerprint(),
            members = family("status, attempts, next_attempt_at, last_error"),
            error = format_args!(
                "(select last_error from ({}) as member where last_error is not null order by updated_at desc limit 1)",
                family("last_error, updated_at")
            ),
            shown = shown(error_text),
            write = self.write(),
            is_due = match &self.layout.status {
                Status::Presence => "m.status = 'delivered'",
                Status::Processed | Status::Code { .. } =>
                    "m.status <> 'processing' and (n.fingerprint = s.fingerprint or m.status = 'delivered')",
            },
            ended = match &self.layout.status {
                // The row has no state but its presence, so only the mapping row knows that the event is dead.
                Status::Presence => "case when f.place is null then a.ended else f.status = 'dead' end",
                Status::Processed | Status::Code { .. } => "a.ended",
            },
        )
    }

    /// Writes the rows that are due. It compares the id too, because a `ctid` is unique only within one partition.
    fn write(&self) -> String {
        let table = quoted_table(&self.layout.table);
        let its_row = format!("s.ctid = f.place and {}", self.is_its_row("f"));
        match &self.layout.status {
            Status::Presence => format!("delete from {table} s using family f where {its_row} and f.is_due"),
            Status::Processed | Status::Code { .. } => format!(
                "update {table} s set {} from family f where {its_row} and f.is_due",
                self.set()
            ),
        }
    }

    /// The table's own columns, by the state of the family.
    fn set(&self) -> String {
        let layout = self.layout;
        let mut set: Vec<String> = Vec::new();
        let mut put = |column: &str, value: String| {
            set.push(format!("{} = ({value})::{}", quoted(column), self.kind(column)));
        };
        if let Status::Code {
            column,
            pending,
            failed,
            delivered,
            dead,
            ..
        } = &layout.status
        {
            let code = |code: &str| format!("{}::{}", literal(code), self.kind(column));
            let own = format!("s.{}", quoted(column));
            let waits = format!(
                "case when f.attempts > 0 then {} else {} end",
                code(failed.as_deref().unwrap_or(pending)),
                code(pending),
            );
            let waits = match layout.shows_processing() {
                Some(processing) => {
                    let later = self.is_due_later();
                    format!("case when {later} then {waits} else {} end", code(processing))
                }
                None => waits,
            };
            put(
                column,
                format!(
                    "case f.status when 'delivered' then {} when 'dead' then {} else {waits} end",
                    code(delivered),
                    dead.as_deref().map_or(own, code),
                ),
            );
        }
        if let Some(column) = &layout.processed_at {
            let now = self.write_time(column, "now()");
            put(
                column,
                format!(
                    "case f.status when 'delivered' then {now} else s.{} end",
                    quoted(column)
                ),
            );
        }
        if let Some(column) = &layout.attempts {
            put(column, self.counter(&format!("s.{}", quoted(column))));
        }
        if let Some(column) = &layout.error {
            let own = format!("s.{}", quoted(column));
            let cleared = if layout.clears_error { "null" } else { &own };
            let deleted = literal(DELETED);
            put(
                column,
                format!(
                    "case when f.status = 'delivered' then {cleared} when f.members = 0 then coalesce({own}, {deleted}) \
                     else coalesce(f.error, {own}) end"
                ),
            );
        }
        if let Some(column) = &layout.due_at {
            let due = self.write_time(column, "f.due_at");
            put(
                column,
                format!(
                    "case f.status when 'pending' then {due} else s.{} end",
                    quoted(column)
                ),
            );
        }
        if let Some(column) = &layout.updated_at {
            put(column, self.write_time(column, "now()"));
        }
        let until = format!("now() + interval '{} seconds'", self.lock_seconds());
        for (column, time) in [
            (&layout.locked_by, None),
            (&layout.locked_until, Some(until.as_str())),
            (&layout.locked_at, Some("now()")),
        ] {
            let Some(column) = column else { continue };
            let unlocked = match layout.shows_processing() {
                None => "null".to_owned(),
                Some(_) => {
                    let own = format!("s.{}", quoted(column));
                    let locked = time.map_or(own, |time| self.write_time(column, time));
                    let later = self.is_due_later();
                    format!("case when f.status = 'pending' and not {later} then {locked} end")
                }
            };
            put(column, unlocked);
        }
        set.join(", ")
    }

    /// The counter. It stays as it was if the event has no native rows.
    fn counter(&self, own: &str) -> String {
        let counted = match self.layout.counts {
            Counts::Claims => "f.attempts",
            Counts::Failures => {
                "greatest(case f.status when 'delivered' then f.attempts - 1 else f.attempts end, 0)"
            }
        };
        let counted = format!("case when f.members = 0 then {own} else {counted} end");
        match (
            &self.layout.max_retries,
            &self.layout.status,
            self.layout.max_attempts,
        ) {
            // The column limits retries, so the last attempt must not raise the counter above it.
            (Some(column), _, _) => format!("least({counted}, s.{})", quoted(column)),
            // Only the counter shows that a row is dead, also if the first attempt was rejected.
            (None, Status::Processed, Some(most)) => {
                format!("case f.status when 'dead' then greatest({counted}, {most}) else {counted} end")
            }
            (None, Status::Processed | Status::Code { .. } | Status::Presence, _) => counted,
        }
    }
}

/// What the table's readers see of an error. A status code is all that is taken from its text.
fn shown(error_text: ErrorText) -> &'static str {
    match error_text {
        ErrorText::Full => "whole.error",
        ErrorText::Status => {
            "case when whole.error is not null then
      case when m.status = 'dead' then 'given up' when m.attempts > 0 then 'failed' else 'waiting' end
      || coalesce(', status ' || substring(whole.error from '^the receiver answered ([0-9]{3})'), '') end"
        }
    }
}

/// The rows of the event `n`.
fn family(columns: &str) -> String {
    format!(
        "select {columns} from pillarbox.outbox_events where id = n.event_id
      union all select {columns} from pillarbox.outbox_events where parent_id = n.event_id"
    )
}
