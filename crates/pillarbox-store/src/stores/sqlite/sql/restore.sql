-- Inserts archived rows, unless their id or their dedupe key is there. Returns the ids of those inserted.
-- ?1 the rows as a JSON array
-- A dead row leaves its lane.
insert or ignore into outbox_events (
  id, seq, parent_id, namespace, topic, event_type, event_version, aggregate_type, aggregate_id, tenant_id,
  dedupe_key, ordering_key, unordered, severity, payload, body, content_type, content_encoding, headers, destination,
  status, attempts, max_attempts, next_attempt_at, last_error, created_at, updated_at, delivered_at
)
select
  value ->> '$.id', value ->> '$.seq', value ->> '$.parent_id', value ->> '$.namespace', value ->> '$.topic',
  value ->> '$.event_type', value ->> '$.event_version', value ->> '$.aggregate_type', value ->> '$.aggregate_id',
  value ->> '$.tenant_id', value ->> '$.dedupe_key', value ->> '$.ordering_key',
  max(value ->> '$.unordered', value ->> '$.status' = 'dead' and value ->> '$.ordering_key' is not null),
  value ->> '$.severity', value -> '$.payload', unhex(substr(value ->> '$.body', 3)), value ->> '$.content_type',
  value ->> '$.content_encoding', value -> '$.headers', value ->> '$.destination', value ->> '$.status',
  value ->> '$.attempts', value ->> '$.max_attempts', value ->> '$.next_attempt_at', value ->> '$.last_error',
  value ->> '$.created_at', value ->> '$.updated_at', value ->> '$.delivered_at'
from json_each(?1)
where value ->> '$.status' in ('delivered', 'dead')
returning id
