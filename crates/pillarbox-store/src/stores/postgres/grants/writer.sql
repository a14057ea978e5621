grant usage on schema pillarbox to writer;
grant insert (
  id, seq, namespace, topic, event_type, event_version, aggregate_type, aggregate_id, tenant_id, dedupe_key,
  ordering_key, severity, payload, body, content_type, content_encoding, headers, destination, next_attempt_at
) on pillarbox.outbox_events to writer;
grant select (id, seq, namespace, topic, dedupe_key) on pillarbox.outbox_events to writer;
grant usage on sequence pillarbox.outbox_seq to writer;
