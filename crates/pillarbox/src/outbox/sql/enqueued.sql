-- The events that the caller's transaction sees in the outbox, each as JSON, in the order of `seq`. Siblings are none.
-- $1 the namespace, or null for all of them
-- Index: none; for tests, which have few rows.
select e.seq as place, json_build_object(
  'id', e.id, 'namespace', e.namespace, 'topic', e.topic,
  'event_type', e.event_type, 'event_version', e.event_version,
  'aggregate_type', e.aggregate_type, 'aggregate_id', e.aggregate_id,
  'tenant_id', e.tenant_id, 'dedupe_key', e.dedupe_key, 'ordering_key', e.ordering_key, 'severity', e.severity,
  'payload', e.payload, 'body', encode(e.body, 'hex'),
  'content_type', e.content_type, 'content_encoding', e.content_encoding,
  'headers', e.headers, 'destination', e.destination,
  'deliver_at', case when e.attempts = 0 and e.next_attempt_at > e.created_at
    then (extract(epoch from e.next_attempt_at) * 1000000)::bigint end
)::text as id
from pillarbox.outbox_events e
where e.parent_id is null and ($1::text is null or e.namespace = $1::text)
order by e.seq
