//! Prunes delivered and dead rows of the table, and mapping rows of rows that are gone.

use std::time::Duration;

use super::literal;
use super::typed_layout::TypedLayout;
use crate::stores::postgres::adopt::inspect::{quoted, quoted_table};
use crate::stores::postgres::adopt::layout::{LayoutError, Status};

impl TypedLayout<'_> {
    pub(super) fn prune(&self, age: Duration) -> Result<String, LayoutError> {
        let column = self.layout.delivered_since()?;
        let delivered = match &self.layout.status {
            Status::Code {
                column, delivered, ..
            } => {
                format!("s.{} = {}", quoted(column), literal(delivered))
            }
            Status::Processed | Status::Presence => "true".to_owned(),
        };
        Ok(self.prune_where(&self.is_older(column, age, &delivered)))
    }

    /// A row stays while its event has not ended in the outbox, or blocks its key there. Where its copy was pruned, nothing does.
    pub(super) fn prune_dead(&self, age: Duration) -> Result<String, LayoutError> {
        let (code, status, column) = self.layout.dead_since()?;
        let dead = format!("s.{} = {}", quoted(status), literal(code));
        let event_id = self.event_id();
        let stays = "(e.open < 2 or e.lane is not null)";
        let is_old = self.is_older(column, age, &dead);
        Ok(self.prune_where(&format!(
            "{is_old}
    and not exists (select from pillarbox.outbox_events e where e.id = {event_id} and {stays})
    and not exists (select from pillarbox.outbox_events e where e.parent_id = {event_id} and {stays})"
        )))
    }

    fn is_older(&self, column: &str, age: Duration, status: &str) -> String {
        let then = self.write_time(column, &format!("now() - interval '{} seconds'", age.as_secs()));
        format!("{status} and s.{} < {then}", quoted(column))
    }

    /// A `ctid` is unique only within one partition, so the partition is compared too. The condition stands in both places:
    /// whatever the first part finds, only a row that fulfils it is deleted.
    fn prune_where(&self, is_old: &str) -> String {
        format!(
            "with old as materialized (
  select s.tableoid as part, s.ctid as place from {table} s where {is_old} limit $2 for update skip locked
), gone as (
  delete from {table} s
  where s.ctid = any(array(select place from old)) and ((s.tableoid, s.ctid) in (select part, place from old)) is true
    and {is_old}
  returning {event_id} as event_id
), unmapped as (
  delete from pillarbox.adopted a
  where a.event_id = any(array(select event_id from gone)) and a.adopted_table = $1 and a.ended
)
select count(*) from gone",
            table = quoted_table(&self.layout.table),
            event_id = self.event_id(),
        )
    }

    /// Steps through the mapping rows of all tables by primary key. An index on ended ones would cost every write-back.
    /// The rows of this table are looked up one by one afterwards, because ids of other tables may be invalid here.
    pub(super) fn prune_mapping(&self) -> String {
        format!(
            "with checked as materialized (
  select a.event_id, a.adopted_table, a.row_id, a.ended and not a.write_back_pending as is_over
  from pillarbox.adopted a where a.event_id > $2 order by a.event_id limit $3
), ours as materialized (
  select event_id, row_id from checked where adopted_table = $1 and is_over
), gone as materialized (
  select event_id from ours o where (select true from {table} s where {is_its_row} limit 1) is null
), free as materialized (
  select a.event_id from pillarbox.adopted a
  where a.event_id = any(array(select event_id from gone)) and a.ended and not a.write_back_pending
  for update skip locked
), unmapped as (
  delete from pillarbox.adopted a where a.event_id = any(array(select event_id from free))
)
select (select count(*) from checked), (select event_id from checked order by event_id desc limit 1)",
            table = quoted_table(&self.layout.table),
            is_its_row = self.is_its_row("o"),
        )
    }
}
