//! Telling the table what became of its rows, in its own columns.

use super::literal;
use super::table::Table;
use crate::stores::postgres::adopt::inspect::{quoted, quoted_table};
use crate::stores::postgres::adopt::layout::{Counts, Status};

impl Table<'_> {
    pub(super) fn lock(&self) -> String {
        format!(
            "select a.event_id from pillarbox.adopted a join {table} s on {is_its_row}
where a.source || '' = $1 and a.event_id = any($2)
for update of s skip locked",
            table = quoted_table(&self.layout.table),
            is_its_row = self.is_its_row(),
        )
    }

    pub(super) fn forgo(&self) -> String {
        format!(
            "update pillarbox.adopted a set behind = false
where a.source || '' = $1 and a.event_id = any($2) and a.behind and not exists (select from {table} s where {is_its_row})",
            table = quoted_table(&self.layout.table),
            is_its_row = self.is_its_row(),
        )
    }

    pub(super) fn tell(&self) -> String {
        let told = match &self.layout.status {
            Status::Presence => format!(
                "delete from {} s using family f
  where {} = f.source_id::{} and f.status = 'delivered'",
                quoted_table(&self.layout.table),
                self.id(),
                self.kind(&self.layout.id)
            ),
            Status::Processed | Status::Code { .. } => format!(
                "update {table} s set {set} from family f
  where {id} = f.source_id::{kind} and f.status <> 'processing' and (f.mark = {mark} or f.status = 'delivered')",
                table = quoted_table(&self.layout.table),
                set = self.set(),
                id = self.id(),
                kind = self.kind(&self.layout.id),
                mark = self.mark(),
            ),
        };
        format!(
            "with member as materialized (
  select a.source_id, a.event_id, a.mark, e.*
  from pillarbox.adopted a cross join lateral (
    select id, status, attempts, next_attempt_at, last_error, updated_at from pillarbox.outbox_events
    where id = a.event_id
    union all
    select id, status, attempts, next_attempt_at, last_error, updated_at from pillarbox.outbox_events
    where parent_id = a.event_id
  ) as e
  where a.source || '' = $1 and a.event_id = any($2)
), family as materialized (
  select source_id, event_id, mark,
    case when bool_or(status not in ('pending', 'dead', 'delivered')) then 'processing'
      when bool_or(status = 'pending') then 'pending' when bool_or(status = 'dead') then 'dead'
      else 'delivered' end as status,
    max(attempts) as attempts, min(next_attempt_at) filter (where status = 'pending') as due_at,
    (array_agg(last_error order by updated_at desc) filter (where last_error is not null))[1] as error
  from member group by source_id, event_id, mark
), told as (
  {told}
  returning f.event_id, f.status, {mark} as mark
), noted as (
  update pillarbox.adopted a set mark = t.mark, behind = false, ended = t.status <> 'pending'
  from told t where t.status <> 'delivered' and a.source || '' = $1 and a.event_id = t.event_id
), forgotten as (
  delete from pillarbox.adopted a using told t
  where t.status = 'delivered' and a.source || '' = $1 and a.event_id = t.event_id
), left_alone as (
  update pillarbox.adopted a set behind = false, ended = {ended} or a.event_id not in (select event_id from member)
  where a.source || '' = $1 and a.event_id = any($2) and a.event_id not in (select event_id from told)
)
select count(*) from told",
            mark = match &self.layout.status {
                Status::Presence => "'-'::text".to_owned(),
                Status::Processed | Status::Code { .. } => self.mark(),
            },
            ended = match &self.layout.status {
                Status::Presence => "a.event_id in (select event_id from family where status = 'dead')",
                Status::Processed | Status::Code { .. } => "a.ended",
            },
        )
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
            put(column, self.counter());
        }
        if let Some(column) = &layout.error {
            let own = format!("s.{}", quoted(column));
            let cleared = if layout.clears_error { "null" } else { &own };
            put(
                column,
                format!("case f.status when 'delivered' then {cleared} else coalesce(f.error, {own}) end"),
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

    fn counter(&self) -> String {
        let counted = match self.layout.counts {
            Counts::Claims => "f.attempts".to_owned(),
            Counts::Failures => {
                "greatest(case f.status when 'delivered' then f.attempts - 1 else f.attempts end, 0)"
                    .to_owned()
            }
        };
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
