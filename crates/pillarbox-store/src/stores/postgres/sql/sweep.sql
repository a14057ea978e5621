-- Ends rows without attempts left: pending ones, and those whose lease expired a while ago.
-- $1 the default limit of attempts   $2 how long after the end of a lease
-- $3 namespaces, or null for all           $4 the reason if a row has none of its own
-- Locks: the chosen rows only; rows locked by others are skipped.
-- Index: outbox_events_own_leases, outbox_events_spent. Runs after end_leases.sql.
with abandoned as materialized (
  select id from pillarbox.outbox_events
  where own_until is not null and own_until < now() - $2
    and attempts >= coalesce(max_attempts, $1)
    and ($3::text[] is null or namespace = any($3))
  order by own_until
  limit 500
  for update skip locked
), exhausted as materialized (
  select id from pillarbox.outbox_events
  where spent is not null and spent >= $1
    and ($3::text[] is null or namespace = any($3))
  order by spent desc
  limit 500
  for update skip locked
)
update pillarbox.outbox_events e
set status = 'dead', updated_at = now(), locked_by = null, locked_until = null, claim_id = null,
    last_error = coalesce(e.last_error, $4)
from (select id from abandoned union all select id from exhausted) as gone
where e.id = gone.id
returning e.id, coalesce(e.parent_id, e.id) as event_id, e.namespace, e.destination,
  case when e.lane is not null then e.ordering_key end as ordering_key, e.attempts, coalesce(e.last_error, '') as reason
