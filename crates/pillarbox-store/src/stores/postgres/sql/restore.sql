-- Inserts archived rows, unless their id or their dedupe key is there. Returns the ids of those inserted.
-- $1 rows as JSON
-- A dead row leaves its lane. Columns that the database generates are left out.
insert into pillarbox.outbox_events (
  id, seq, parent_id, namespace, topic, event_type, event_version, aggregate_type, aggregate_id, tenant_id, dedupe_key,
  ordering_key, unordered, severity, payload, body, content_type, content_encoding, headers, destination, status, attempts,
  max_attempts, next_attempt_at, last_error, created_at, updated_at, delivered_at, adopted_table, enqueued_by
)
select
  r.id, r.seq, r.parent_id, r.namespace, r.topic, r.event_type, r.event_version, r.aggregate_type, r.aggregate_id,
  r.tenant_id, r.dedupe_key, r.ordering_key, r.unordered or (r.status = 'dead' and r.ordering_key is not null), r.severity,
  coalesce(r.payload, 'null'), r.body, r.content_type, r.content_encoding, r.headers, r.destination, r.status, r.attempts, r.max_attempts,
  r.next_attempt_at, r.last_error, r.created_at, r.updated_at, r.delivered_at, r.adopted_table, r.enqueued_by
from unnest($1::text[]) as given (row)
cross join lateral jsonb_populate_record(null::pillarbox.outbox_events, given.row::jsonb) as r
where r.status in ('delivered', 'dead')
on conflict do nothing
returning id
