//! Heeding what others do to the table, and keeping it small.

use std::time::Duration;

use super::literal;
use super::table::Table;
use crate::stores::postgres::adopt::inspect::{quoted, quoted_table};
use crate::stores::postgres::adopt::layout::{LayoutError, Status};

impl Table<'_> {
    pub(super) fn heed(&self) -> String {
        format!(
            "with changed as materialized (
  select a.event_id, s.is_live is not true as is_over
  from pillarbox.adopted a left join lateral (
    select {live} as is_live, {mark} as says from {table} s where {is_its_row} offset 0
  ) as s on true
  where a.source = $1 and not a.ended and (s.says is null or (not a.behind and a.mark <> s.says))
  for update of a skip locked
), free as materialized (
  select * from changed c
  where (select true from pillarbox.outbox_events e where e.id = c.event_id and e.status || '' = 'processing') is null
    and (select true from pillarbox.outbox_events e
      where e.parent_id = c.event_id and e.status || '' = 'processing' limit 1) is null
), dropped as (
  delete from pillarbox.outbox_events e
  where e.id = any(array(select event_id from free where is_over)) and e.status <> 'processing'
), dropped_siblings as (
  delete from pillarbox.outbox_events e
  where e.parent_id = any(array(select event_id from free where is_over)) and e.status <> 'processing'
), forgotten as (
  delete from pillarbox.adopted a where a.event_id = any(array(select event_id from free where is_over))
), reset as (
  update pillarbox.adopted a set ended = true
  where a.event_id = any(array(select event_id from free where not is_over))
)
select count(*) filter (where is_over), count(*) filter (where not is_over) from free",
            live = self.live(),
            table = quoted_table(&self.layout.table),
            is_its_row = self.is_its_row("a"),
            mark = self.mark(),
        )
    }

    pub(super) fn prune(&self, age: Duration) -> Result<String, LayoutError> {
        let Some(column) = &self.layout.processed_at else {
            let why = "`prune` needs `processed_at`: nothing else says how long ago a row was delivered";
            return Err(LayoutError::Impossible(why.to_owned()));
        };
        let then = self.write_time(column, &format!("now() - interval '{} seconds'", age.as_secs()));
        let delivered = match &self.layout.status {
            Status::Code {
                column, delivered, ..
            } => {
                format!("s.{} = {}", quoted(column), literal(delivered))
            }
            Status::Processed | Status::Presence => "true".to_owned(),
        };
        Ok(format!(
            "with gone as (
  delete from {table} s where s.ctid = any(array(
    select s.ctid from {table} s where {delivered} and s.{column} < {then} limit $2 for update skip locked
  ))
  returning {event_id} as event_id
), forgotten as (
  delete from pillarbox.adopted a
  where a.event_id = any(array(select event_id from gone)) and a.source = $1 and a.ended
)
select count(*) from gone",
            table = quoted_table(&self.layout.table),
            column = quoted(column),
            event_id = self.event_id(),
        ))
    }

    /// Goes through the notes of all tables by their primary key, for there is no index on those that ended: it would cost
    /// every row that is told. Only then are the table's rows looked up, one by one: another table's ids may be no ids here.
    pub(super) fn forget(&self) -> String {
        format!(
            "with looked as materialized (
  select a.event_id, a.source, a.source_id, a.ended and not a.behind as is_over
  from pillarbox.adopted a where a.event_id > $2 order by a.event_id limit $3
), ours as materialized (
  select event_id, source_id from looked where source = $1 and is_over
), gone as materialized (
  select event_id from ours o where (select true from {table} s where {is_its_row} limit 1) is null
), free as materialized (
  select a.event_id from pillarbox.adopted a
  where a.event_id = any(array(select event_id from gone)) and a.ended and not a.behind
  for update skip locked
), forgotten as (
  delete from pillarbox.adopted a where a.event_id = any(array(select event_id from free))
)
select (select count(*) from looked), (select event_id from looked order by event_id desc limit 1)",
            table = quoted_table(&self.layout.table),
            is_its_row = self.is_its_row("o"),
        )
    }

    pub(super) fn strangers(&self) -> Option<String> {
        let Status::Code {
            column,
            pending,
            processing,
            failed,
            delivered,
            dead,
        } = &self.layout.status
        else {
            return None;
        };
        let known: Vec<String> = [
            Some(pending),
            processing.as_ref(),
            failed.as_ref(),
            Some(delivered),
            dead.as_ref(),
        ]
        .into_iter()
        .flatten()
        .map(|code| literal(code))
        .collect();
        // From one value to the next by an index on the column: what is known is stepped over, however much it is.
        Some(format!(
            "with recursive value as (
  (select s.{column} as code from {table} s where s.{column} is not null order by 1 limit 1)
  union all
  select (select s.{column} from {table} s where s.{column} > v.code order by 1 limit 1)
  from value v where v.code is not null
)
select count(*) from (
  (select from value v join {table} s on s.{column} = v.code where v.code::text not in ({known}) limit $1)
  union all
  (select from {table} s where s.{column} is null limit $1)
  limit $1
) as strange",
            column = quoted(column),
            table = quoted_table(&self.layout.table),
            known = known.join(", ")
        ))
    }
}
