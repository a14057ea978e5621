-- Writes events in the caller's transaction. Those whose dedupe key was there before do not come back.
-- /*rows*/ is one list of 18 values per event, in the order of the columns; the last is when it is due.
insert into outbox_events (
  id, namespace, topic, event_type, event_version, aggregate_type, aggregate_id, tenant_id, dedupe_key,
  ordering_key, severity, payload, body, content_type, content_encoding, headers, destination, next_attempt_at
) values /*rows*/
on conflict (namespace, topic, dedupe_key) where dedupe_key is not null do nothing
returning id
