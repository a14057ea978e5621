-- Claims one row that has had two attempts or more and whose lease ran out.
-- $1 worker   $2 claim id   $3 lease   $4 attempts of a row that does not say   $5 namespaces, or null for all
-- Locks: the chosen row only; rows locked by others are skipped.
-- Index: outbox_events_leased; then the primary key.
with expired as materialized (
  select id
  from pillarbox.outbox_events
  where status = 'processing' and coalesce(locked_until, '-infinity') < now()
    and attempts >= 2 and attempts < coalesce(max_attempts, $4)
    and ($5::text[] is null or namespace = any($5))
  order by coalesce(locked_until, '-infinity'), seq
  limit 1
  for update skip locked
)
update pillarbox.outbox_events e
set attempts = e.attempts + 1, updated_at = now(), locked_by = $1, locked_until = now() + $3, claim_id = $2
from expired x
where e.id = x.id
returning e.id, e.parent_id, e.seq, e.namespace, e.topic, e.event_type, e.event_version, e.aggregate_type,
  e.aggregate_id, e.tenant_id, e.dedupe_key, e.ordering_key, e.severity, e.payload, e.body, e.content_type,
  e.content_encoding, nullif(e.headers, '{}') as headers, e.destination, e.attempts, e.max_attempts,
  e.created_at, true as recovered
