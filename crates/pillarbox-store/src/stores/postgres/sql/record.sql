-- The columns that operators see, in the order in which list.rs reads the event's. /*payload*/ is the payload, or null
-- where rows are listed.
select id, parent_id, seq, /*event_columns*/ dedupe_key, destination, status, unordered, attempts, max_attempts,
  next_attempt_at, locked_by, locked_until, last_error, created_at, updated_at, delivered_at, /*payload*/ as payload,
  octet_length(body)::bigint as body_bytes
from pillarbox.outbox_events
