-- The columns that operators see, in the order in which list.rs reads the event's. /*payload*/ is the payload, or null
-- where rows are listed. The lease of the claim counts, unless the row has a lease of its own.
select id, parent_id, seq, /*event_columns*/ dedupe_key, destination, status, unordered, attempts, max_attempts,
  next_attempt_at, locked_by, coalesce(
    case when status = 'processing' and own_until is null then (
      select l.until from pillarbox.lease_of(e.claim_id, e.id) as l) end,
    locked_until) as locked_until,
  last_error, created_at, greatest(
    case when status = 'processing' and own_until is null then (
      select l.updated_at from pillarbox.lease_of(e.claim_id, e.id) as l) end,
    updated_at) as updated_at,
  delivered_at, /*payload*/ as payload, octet_length(body)::bigint as body_bytes
from pillarbox.outbox_events e
