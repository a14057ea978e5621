-- Ends rows without attempts left: pending ones, and those whose lease expired a while ago.
-- $1 the default limit of attempts   $2 how long after the end of a lease
-- $3 namespaces, or null for all           $4 the reason if a row has none of its own
-- Locks: the chosen rows only; rows locked by others are skipped.
-- Index: outbox_events_leased, outbox_events_exhausted, outbox_events_tried.
with abandoned as materialized (
  select id from pillarbox.outbox_events
  where status = 'processing' and coalesce(locked_until, '-infinity') < now() - $2
    and attempts >= coalesce(max_attempts, $1)
    and ($3::text[] is null or namespace = any($3))
  order by coalesce(locked_until, '-infinity')
  limit 500
  for update skip locked
), exhausted as materialized (
  select id from pillarbox.outbox_events
  where status = 'pending' and attempts >= max_attempts
    and ($3::text[] is null or namespace = any($3))
  order by seq
  limit 500
  for update skip locked
), tried as materialized (
  select id from pillarbox.outbox_events
  where status = 'pending' and attempts > 0 and max_attempts is null and attempts >= $1
    and ($3::text[] is null or namespace = any($3))
  order by attempts
  limit 500
  for update skip locked
)
update pillarbox.outbox_events e
set status = 'dead', updated_at = now(), locked_by = null, locked_until = null, claim_id = null,
    last_error = coalesce(e.last_error, $4)
from (select id from abandoned union all select id from exhausted union all select id from tried) as gone
where e.id = gone.id
returning e.id, coalesce(e.parent_id, e.id) as event_id, e.namespace, e.destination,
  case when e.lane is not null then e.ordering_key end as ordering_key, e.attempts, coalesce(e.last_error, '') as reason
