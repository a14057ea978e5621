-- What is noted of the events that these rows belong to, for those that came from adopted tables.
-- $1 rows
-- Locks: what is noted, in one order for everybody, so that no two can wait for each other.
-- Index: the primary key of outbox_events; adopted_event.
select a.source, a.event_id from pillarbox.adopted a
where a.event_id = any(array(
  select coalesce(e.parent_id, e.id) from pillarbox.outbox_events e where e.id = any($1)
))
order by a.source, a.event_id
for update of a /*patience*/
