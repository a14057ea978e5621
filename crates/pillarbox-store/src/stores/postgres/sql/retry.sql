-- Makes dead and pending rows due now, with all their attempts.
-- $1 ids   $2 the tenant, or null for all
-- Returns each row with the status that it had.
-- Locks: the rows, in the order of their ids; waits for a running claim.
with chosen as materialized (
  select id, status from pillarbox.outbox_events
  where id = any($1) and ($2::uuid is null or tenant_id = $2) and status in ('pending', 'dead')
  order by id
  for update
)
update pillarbox.outbox_events e
set status = 'pending', attempts = 0, next_attempt_at = now(), updated_at = now(), by_key = e.lane is not null,
    locked_by = null, locked_until = null, claim_id = null
from chosen c
where e.id = c.id and e.status in ('pending', 'dead')
returning e.id, c.status
