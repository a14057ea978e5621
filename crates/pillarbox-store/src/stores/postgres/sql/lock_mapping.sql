-- The events of these rows that came from adopted tables, by table.
-- $1 rows
-- Locks: their mapping rows, in one order for all workers, so that they cannot deadlock.
-- Index: the primary key of adopted. It reads outbox_events only where events have siblings: a row is mapped by its own
-- id, a sibling by its parent's.
with parent as materialized (
  select parent_id from pillarbox.outbox_events
  where /*are there any*/(select exists (select from pillarbox.outbox_events where parent_id is not null))/*siblings*/
    and id = any($1) and parent_id is not null
), mapping as materialized (
  select a.adopted_table, a.event_id from pillarbox.adopted a
  where a.event_id = any($1::uuid[] || array(select parent_id from parent))
  order by a.adopted_table, a.event_id
  for update of a /*skip*/
)
select adopted_table, array_agg(event_id) from mapping group by adopted_table
