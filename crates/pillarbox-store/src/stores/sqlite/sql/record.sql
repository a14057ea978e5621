-- The columns that operators see. /*payload*/ is the payload, or null where rows are listed.
select id, parent_id, seq, /*event_columns*/ dedupe_key, destination, status, attempts, max_attempts, next_attempt_at,
  unordered and ordering_key is not null as unordered, locked_by, locked_until, last_error, created_at, updated_at,
  delivered_at, /*payload*/ as payload, octet_length(body) as body_bytes
from outbox_events
