-- Deletes delivered events of one namespace that are old enough, the oldest first.
-- $1 namespaces with retention of their own   $2 how long their delivered rows are kept   $3 how long their dead ones
-- $4 and $5 the same of the others; null is for ever   $6 the namespace   $7 and of its delivered rows
-- $8 not delivered before   $9 how many rows of that time to pass over   $10 how many rows to read   $11 is it a dry run?
-- Returns how many delivered and dead rows were deleted; of those read, how many, the last time, how many are over, and how many of
-- the last time stay.
-- /*over*/ is over.sql. /*rows*/ are the deleted rows, if they are archived.
-- Locks: the rows of these events; an event with a row that another session has locked stays.
-- Index: outbox_events_delivered; then the primary key and outbox_events_siblings.
with seen as materialized (
  select coalesce(parent_id, id) as event, delivered_at as at from pillarbox.outbox_events
  where open is null and namespace = $6 and delivered_at >= $8 and delivered_at < now() - $7
  order by delivered_at
  offset $9 limit $10
/*over*/
)
select count(*) filter (where is_delivered) as delivered, count(*) filter (where not is_delivered) as dead,
  (select count(*) from seen) as read, (select max(at) from seen) as at,
  (select count(*) from seen where event not in (select event from staying)) as over,
  (select count(*) from seen where at = (select max(at) from seen) and ($11 or event in (select event from staying))) as left,
  /*rows*/null::text[] as rows
from gone
