-- Skips dead and pending rows: they are dead, and no longer block their keys.
-- $1 ids   $2 the reason if a row has none of its own   $3 the tenant, or null for all
-- Returns each row with the status that it had.
-- Locks: the rows, in the order of their ids; waits for a running claim.
with chosen as materialized (
  select id, status from pillarbox.outbox_events
  where id = any($1) and ($3::uuid is null or tenant_id = $3) and status in ('pending', 'dead') and lane is not null
  order by id
  for update
)
update pillarbox.outbox_events e
set unordered = true, status = 'dead', updated_at = now(), locked_by = null, locked_until = null, claim_id = null,
    last_error = case when e.status = 'pending' then coalesce(e.last_error, $2) else e.last_error end
from chosen c
where e.id = c.id
returning e.id, c.status
