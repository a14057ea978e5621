-- The events that these rows belong to, by source, for those that came from adopted tables.
-- $1 rows
-- Locks: what is noted, in one order for everybody, so that no two can wait for each other.
-- Index: the primary key of adopted; of outbox_events only where events go to several destinations: a row is noted by its
-- own id, a sibling by that of its parent.
with parent as materialized (
  select parent_id from pillarbox.outbox_events
  where (select exists (select from pillarbox.outbox_events where parent_id is not null))
    and id = any($1) and parent_id is not null
), noted as materialized (
  select a.source, a.event_id from pillarbox.adopted a
  where a.event_id = any($1::uuid[] || array(select parent_id from parent))
  order by a.source, a.event_id
  for update of a /*patience*/
)
select source, array_agg(event_id) from noted group by source
