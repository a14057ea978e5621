-- The columns that people see. /*payload*/ is the payload, or null where rows are listed.
select id, coalesce(parent_id, id) as event_id, seq, namespace, topic, event_type, event_version, aggregate_type,
  aggregate_id, tenant_id, dedupe_key, ordering_key, severity, destination, status, unordered, attempts, max_attempts,
  next_attempt_at, locked_by, locked_until, last_error, created_at, updated_at, delivered_at, content_type,
  content_encoding, headers, /*payload*/ as payload, octet_length(body)::bigint as body_bytes
from pillarbox.outbox_events
