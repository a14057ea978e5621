-- Claims due rows for one worker, and a few rows whose first lease ran out.
-- $1 worker   $2 claim id   $3 lease   $4 how many due rows   $5 how many whose lease ran out
-- $6 attempts of a row that does not say   $7 namespaces, or null for all   $8 bytes at the most, or one row
-- Locks: the chosen rows only; rows locked by others are skipped.
-- Index: outbox_events_leased, outbox_events_waiting, outbox_events_fresh; then the primary key.
--
-- Rows tried before get at most half of the room, so that neither they nor fresh rows starve.
with expired as materialized (
  select id, seq, 0 as rank, coalesce(locked_until, '-infinity') as at, true as recovered,
    pillarbox.size(payload, body) as size
  from pillarbox.outbox_events
  where status = 'processing' and coalesce(locked_until, '-infinity') < now()
    and attempts < 2 and attempts < coalesce(max_attempts, $6)
    and ($7::text[] is null or namespace = any($7))
  order by coalesce(locked_until, '-infinity'), seq
  limit $5
  for update skip locked
), waited as materialized (
  select id, seq, 1 as rank, next_attempt_at as at, false as recovered,
    pillarbox.size(payload, body) as size
  from pillarbox.outbox_events
  where status = 'pending' and next_attempt_at > created_at and next_attempt_at <= now()
    and attempts < coalesce(max_attempts, $6)
    and ($7::text[] is null or namespace = any($7))
  order by next_attempt_at, seq
  limit ($4 + 1) / 2
  for update skip locked
), fresh as materialized (
  select id, seq, 2 as rank, '-infinity'::timestamptz as at, false as recovered,
    pillarbox.size(payload, body) as size
  from pillarbox.outbox_events
  where status = 'pending' and next_attempt_at <= created_at and next_attempt_at <= now()
    and attempts < coalesce(max_attempts, $6)
    and ($7::text[] is null or namespace = any($7))
  order by seq
  limit $4 - (select count(*) from waited)
  for update skip locked
), chosen as (
  select id, recovered, size, sum(size) over (order by rank, at, seq rows unbounded preceding) as total
  from (select * from expired union all select * from waited union all select * from fresh) as candidate
)
update pillarbox.outbox_events e
set status = 'processing', attempts = greatest(e.attempts, 0) + 1, updated_at = now(),
    locked_by = $1, locked_until = now() + $3, claim_id = $2
from chosen c
where e.id = c.id and (c.total <= $8 or c.total = c.size)
returning e.id, e.parent_id, e.seq, e.namespace, e.topic, e.event_type, e.event_version, e.aggregate_type,
  e.aggregate_id, e.tenant_id, e.dedupe_key, e.ordering_key, e.severity, e.payload, e.body, e.content_type,
  e.content_encoding, nullif(e.headers, '{}') as headers, e.destination, e.attempts, e.max_attempts,
  e.created_at, c.recovered
