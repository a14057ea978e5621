-- Writes events in the caller's transaction. Those whose dedupe key was there before do not come back.
-- /*rows*/ is one list of 17 values per event, in the order of the columns.
insert into outbox_events (
  id, namespace, topic, event_type, event_version, aggregate_type, aggregate_id, tenant_id, dedupe_key,
  ordering_key, severity, payload, body, content_type, content_encoding, headers, destination
) values /*rows*/
on conflict (namespace, topic, dedupe_key) where dedupe_key is not null do nothing
returning id
