-- Makes unrouted rows due now, without a destination.
-- $1 ids
-- Locks: the rows, in the order of their ids.
with chosen as materialized (
  select id from pillarbox.outbox_events
  where id = any($1) and status || '' = 'pending' and destination = 'unrouted'
  order by id
  for update
)
update pillarbox.outbox_events e
set destination = null, next_attempt_at = now(), by_key = e.lane is not null, updated_at = now()
from chosen c
where e.id = c.id
returning e.id
