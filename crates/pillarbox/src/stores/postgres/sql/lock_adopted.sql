-- What is noted of the events that these rows belong to, for those that came from adopted tables.
-- $1 rows
-- Locks: what is noted, in one order for everybody, so that no two can wait for each other.
-- Index: the primary key of adopted; of outbox_events only for rows that are not noted themselves, which siblings are.
with noted as materialized (
  select event_id from pillarbox.adopted where event_id = any($1)
), parent as materialized (
  select parent_id from pillarbox.outbox_events
  where id = any(array(select unnest($1) except all select event_id from noted)) and parent_id is not null
)
select a.source, a.event_id, a.source_id, a.mark from pillarbox.adopted a
where a.event_id = any(array(select event_id from noted union all select parent_id from parent))
order by a.source, a.event_id
for update of a /*patience*/
