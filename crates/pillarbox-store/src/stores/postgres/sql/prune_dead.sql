-- Deletes events with a dead row that are old enough, in the order of insertion.
-- $1 namespaces with retention of their own   $2 how long their delivered rows are kept   $3 how long their dead ones
-- $4 and $5 the same of the others; null is for ever   $6 namespaces, or null for all   $7 after this seq   $8 how many rows to read
-- Returns how many delivered and dead rows were deleted, how many rows are over and were read, and the last seq.
-- /*over*/ is over.sql. /*rows*/ are the deleted rows, if they are archived.
-- Locks: the rows of these events; an event with a row that another session has locked stays.
-- Index: outbox_events_ended; then the primary key and outbox_events_siblings.
--
-- It reads every dead row, once in a pass. Rows that stay are kept for long, or block their key.
with read as materialized (
  select coalesce(parent_id, id) as event, seq, namespace, lane, updated_at from pillarbox.outbox_events
  where open = 2 and seq > $7
  order by seq
  limit $8
), seen as materialized (
  select event from read
  where lane is null and ($6::text[] is null or namespace = any($6))
    and updated_at < now() - (select case when namespace = any($1)
      then (select r.dead from unnest($1::text[], $3::interval[]) as r (name, dead) where r.name = namespace)
      else $5::interval end)
/*over*/
)
select count(*) filter (where is_delivered) as delivered, count(*) filter (where not is_delivered) as dead,
  (select count(*) from seen where event not in (select event from staying)) as over, (select count(*) from read) as read, (select max(seq) from read) as seq,
  /*rows*/null::text[] as rows
from gone
