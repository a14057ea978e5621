-- Takes dead rows out of their lanes, so that they no longer block their keys.
-- $1 ids
-- Locks: the rows, in the order of their ids.
with chosen as materialized (
  select id from pillarbox.outbox_events
  where id = any($1) and status || '' = 'dead' and lane is not null
  order by id
  for update
)
update pillarbox.outbox_events e
set unordered = true, updated_at = now()
from chosen c
where e.id = c.id
returning e.id
