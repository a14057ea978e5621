grant usage on schema pillarbox to producer;
grant execute on function pillarbox.enqueue, pillarbox.enqueue_many to producer;
grant insert (
  id, seq, namespace, topic, event_type, event_version, aggregate_type, aggregate_id, tenant_id, dedupe_key,
  ordering_key, severity, payload, body, content_type, content_encoding, headers, destination, next_attempt_at
) on pillarbox.outbox_events to producer;
grant select (id, seq, namespace, topic, dedupe_key) on pillarbox.outbox_events to producer;
grant usage on sequence pillarbox.outbox_seq to producer;
