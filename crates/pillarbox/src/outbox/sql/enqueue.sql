-- Writes one event in the caller's transaction. No row comes back if its dedupe key was there before.
-- $1 id … $17 destination, in the order of the columns   $18 not before this
-- Locks: the new row, and its dedupe key until the transaction ends.
insert into pillarbox.outbox_events (
  id, namespace, topic, event_type, event_version, aggregate_type, aggregate_id, tenant_id, dedupe_key,
  ordering_key, severity, payload, body, content_type, content_encoding, headers, destination, next_attempt_at
) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12::text::jsonb, $13, $14, $15, $16::text::jsonb,
  $17, greatest($18::text::timestamptz, now()))
on conflict (namespace, topic, dedupe_key) where dedupe_key is not null do nothing
returning seq as place, id::text as id
