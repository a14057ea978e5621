-- Acks the rows of the last turn and claims up to 1,000 for the next, in one round trip.
-- $1 ids to ack   $2 worker
-- Locks: the chosen rows only; rows locked by others are skipped.
-- Index: the primary key; plain_outbox_due.
with acked as (
  update plain_outbox
  set status = 'delivered', locked_by = null, locked_until = null, updated_at = now()
  where id = any($1)
), due as materialized (
  select id from plain_outbox
  where status = 'pending' and next_attempt_at <= now()
  order by next_attempt_at
  limit 1000
  for update skip locked
)
update plain_outbox p
set status = 'processing', attempts = attempts + 1, updated_at = now(),
    locked_by = $2, locked_until = now() + interval '60 s'
from due
where p.id = due.id
returning p.id, p.topic, p.payload::text
