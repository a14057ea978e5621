json_object(
  'id', id, 'seq', seq, 'parent_id', parent_id, 'namespace', namespace, 'topic', topic, 'event_type', event_type,
  'event_version', event_version, 'aggregate_type', aggregate_type, 'aggregate_id', aggregate_id,
  'tenant_id', tenant_id, 'dedupe_key', dedupe_key, 'ordering_key', ordering_key, 'unordered', unordered,
  'severity', severity, 'payload', json(payload), 'body', iif(body is null, null, '\x' || lower(hex(body))), 'content_type', content_type,
  'content_encoding', content_encoding, 'headers', json(headers), 'destination', destination, 'status', status,
  'attempts', attempts, 'max_attempts', max_attempts, 'next_attempt_at', next_attempt_at, 'last_error', last_error,
  'created_at', created_at, 'updated_at', updated_at, 'delivered_at', delivered_at
)
