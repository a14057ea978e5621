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
  select a.source_id, a.event_id, {id} is null or not {live} as is_over
  from pillarbox.adopted a left join {table} s on {is_its_row}
  where a.source = $1 and not a.ended and ({id} is null or (not a.behind and a.mark is distinct from {mark}))
  for update of a skip locked
), free as materialized (
  select * from changed c
  where not exists (
      select from pillarbox.outbox_events e where e.id = c.event_id and e.status || '' = 'processing')
    and not exists (
      select from pillarbox.outbox_events e where e.parent_id = c.event_id and e.status || '' = 'processing')
), dropped as (
  delete from pillarbox.outbox_events e using free f
  where f.is_over and e.id = f.event_id and e.status || '' <> 'processing'
), dropped_siblings as (
  delete from pillarbox.outbox_events e using free f
  where f.is_over and e.parent_id = f.event_id and e.status || '' <> 'processing'
), forgotten as (
  delete from pillarbox.adopted a using free f
  where f.is_over and a.source = $1 and a.source_id = f.source_id
), reset as (
  update pillarbox.adopted a set ended = true from free f
  where not f.is_over and a.source = $1 and a.source_id = f.source_id
)
select count(*) filter (where is_over), count(*) filter (where not is_over) from free",
            id = self.id(),
            live = self.live(),
            table = quoted_table(&self.layout.table),
            is_its_row = self.is_its_row(),
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
  returning {id_text} as source_id
), forgotten as (
  delete from pillarbox.adopted a using gone g where a.source = $1 and a.source_id = g.source_id and a.ended
)
select count(*) from gone",
            table = quoted_table(&self.layout.table),
            column = quoted(column),
            id_text = self.id_text(),
        ))
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
