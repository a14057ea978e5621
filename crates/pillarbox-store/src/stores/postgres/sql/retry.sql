-- Makes dead and pending rows due now, with all their attempts.
-- $1 ids
-- Locks: the rows, in the order of their ids; waits for a running claim.
with chosen as materialized (
  select id from pillarbox.outbox_events
  where id = any($1) and status in ('pending', 'dead')
  order by id
  for update
)
update pillarbox.outbox_events e
set status = 'pending', attempts = 0, next_attempt_at = now(), updated_at = now(), by_key = e.lane is not null,
    locked_by = null, locked_until = null, claim_id = null
from chosen c
where e.id = c.id and e.status in ('pending', 'dead')
returning e.id
