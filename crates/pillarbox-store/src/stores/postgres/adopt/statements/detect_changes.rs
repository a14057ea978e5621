//! Detects rows that others changed or deleted.

use super::typed_layout::TypedLayout;
use crate::stores::postgres::adopt::inspect::quoted_table;

impl TypedLayout<'_> {
    /// Drops events whose rows were ended or deleted, and marks those that were reset as ended, so that they are imported
    /// again. An event that is being sent waits for a later round.
    pub(super) fn detect_changes(&self) -> String {
        format!(
            "with changed as materialized (
  select a.event_id, s.is_live is not true as is_over
  from pillarbox.adopted a left join lateral (
    select {live} as is_live, {fingerprint} as fingerprint from {table} s where {is_its_row} offset 0
  ) as s on true
  where a.adopted_table = $1 and not a.ended and not a.rejected
    and (s.fingerprint is null or (not a.write_back_pending and a.fingerprint <> s.fingerprint))
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
), unmapped as (
  delete from pillarbox.adopted a where a.event_id = any(array(select event_id from free where is_over))
), reset as (
  update pillarbox.adopted a set ended = true
  where a.event_id = any(array(select event_id from free where not is_over))
)
select count(*) filter (where is_over), count(*) filter (where not is_over) from free",
            live = self.live(),
            table = quoted_table(&self.layout.table),
            is_its_row = self.is_its_row("a"),
            fingerprint = self.fingerprint(),
        )
    }
}
