-- Deletes rows that are not in flight. Returns each with its event, and whether it was delivered.
-- $1 ids
-- Locks: the rows, in the order of their ids; waits for a running claim.
with chosen as materialized (
  select id from pillarbox.outbox_events
  where id = any($1) and (status <> 'processing' or coalesce(locked_until, '-infinity') < now())
  order by id
  for update
)
delete from pillarbox.outbox_events e
using chosen c
where e.id = c.id and (e.status <> 'processing' or coalesce(e.locked_until, '-infinity') < now())
returning e.id, coalesce(e.parent_id, e.id), e.status = 'delivered'
