-- The events that the caller's transaction sees in the outbox, in the order of `seq`, without siblings.
-- ?1 the namespace, or null for all of them
-- Index: none; for tests, which have few rows.
select id, parent_id, seq, /*event_columns*/ dedupe_key, payload, body, destination,
  iif(attempts = 0 and next_attempt_at > created_at, next_attempt_at, null) as deliver_at
from outbox_events
where parent_id is null and (?1 is null or namespace = ?1)
order by seq
