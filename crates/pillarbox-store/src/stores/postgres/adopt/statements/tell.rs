//! Telling the table what became of its rows, in its own columns.

use super::literal;
use super::table::Table;
use crate::stores::postgres::adopt::inspect::{quoted, quoted_table};
use crate::stores::postgres::adopt::layout::{Counts, Status};

/// The error of a row that a person deleted here before anything else was wrong with it.
const DELETED: &str = "deleted by a person";

impl Table<'_> {
    pub(super) fn forgo(&self) -> String {
        format!(
            "update pillarbox.adopted a set behind = false
where a.event_id = any($1) and a.behind and (select true from {table} s where {is_its_row} limit 1) is null",
            table = quoted_table(&self.layout.table),
            is_its_row = self.is_its_row("a"),
        )
    }

    /// Each event finds its row and its family by itself (lateral), whatever the planner thinks of their number: it
    /// would read all of a table rather than look for a thousand rows of it. `(select $1)` keeps the number from it, so
    /// that notes are looked up too.
    ///
    /// An event that has no rows left was given up on if its note says that it ended, and otherwise nobody wanted it: then
    /// it is done.
    ///
    /// The place of a row leads from its lock to its update. A row that was changed between being seen and being locked
    /// has another place than this statement can see: it is told later, as one that somebody holds.
    pub(super) fn tell(&self) -> String {
        format!(
            "with family as materialized (
  select n.event_id, n.source_id, s.place, m.members, m.status, m.attempts, m.due_at,
    case when m.members > 1 then {error} else m.error end as error, {is_due} as is_due
  from unnest((select $1::uuid[])) as given (event_id) cross join lateral (
    select a.event_id, a.source_id, a.mark, a.ended from pillarbox.adopted a where a.event_id = given.event_id
  ) as n
  left join lateral (
    select s.ctid as place, {mark} as says from {table} s where {is_its_row} for no key update skip locked
  ) as s on true cross join lateral (
    select count(*) as members,
      case when bool_or(status not in ('pending', 'dead', 'delivered')) then 'processing'
        when bool_or(status = 'pending') then 'pending' when bool_or(status = 'dead') then 'dead'
        when count(*) = 0 and n.ended then 'dead' else 'delivered' end as status,
      max(attempts) as attempts, min(next_attempt_at) filter (where status = 'pending') as due_at,
      max(last_error) as error
    from ({members}) as member
  ) as m
), told as (
  {told}
  returning f.event_id, f.status, {mark} as mark
), noted as (
  update pillarbox.adopted a set mark = t.mark, behind = false, ended = t.status <> 'pending'
  from told t where t.status <> 'delivered' and a.event_id = t.event_id
), forgotten as (
  delete from pillarbox.adopted a using told t where t.status = 'delivered' and a.event_id = t.event_id
), left_alone as (
  update pillarbox.adopted a
  set behind = f.place is null or coalesce(f.is_due, false), ended = {ended}
  from family f where a.event_id = f.event_id and f.event_id not in (select event_id from told)
)
select count(*) from told",
            table = quoted_table(&self.layout.table),
            is_its_row = self.is_its_row("n"),
            mark = self.mark(),
            members = family("status, attempts, next_attempt_at, last_error"),
            error = format_args!(
                "(select last_error from ({}) as member where last_error is not null order by updated_at desc limit 1)",
                family("last_error, updated_at")
            ),
            told = self.told(),
            is_due = match &self.layout.status {
                Status::Presence => "m.status = 'delivered'",
                Status::Processed | Status::Code { .. } =>
                    "m.status <> 'processing' and (n.mark = s.says or m.status = 'delivered')",
            },
            ended = match &self.layout.status {
                // Its row is there or it is not, and says no more: only the note tells that it is given up on, or no longer.
                Status::Presence => "case when f.place is null then a.ended else f.status = 'dead' end",
                Status::Processed | Status::Code { .. } => "a.ended",
            },
        )
    }

    /// Writes those that are due. The id beside the place: in a table of several parts each has its own places.
    fn told(&self) -> String {
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

    /// The source's own columns as the family's state has them.
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
            put(
                column,
                format!(
                    "case f.status when 'delivered' then {} when 'dead' then {} else case when f.attempts > 0 then {} \
                     else {} end end",
                    code(delivered),
                    dead.as_deref().map_or(own, code),
                    code(failed.as_deref().unwrap_or(pending)),
                    code(pending),
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
        for column in [&layout.locked_by, &layout.locked_until, &layout.locked_at]
            .into_iter()
            .flatten()
        {
            put(column, "null".to_owned());
        }
        set.join(", ")
    }

    /// Where no row is left to count, it stays what it was.
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
            // The last attempt is no retry any more.
            (Some(column), _, _) => format!("least({counted}, s.{})", quoted(column)),
            // Nothing else tells that the row is given up on, also if it was refused at the first attempt.
            (None, Status::Processed, Some(most)) => {
                format!("case f.status when 'dead' then greatest({counted}, {most}) else {counted} end")
            }
            (None, Status::Processed | Status::Code { .. } | Status::Presence, _) => counted,
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
