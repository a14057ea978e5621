-- Writes many events in the caller's transaction. Those whose dedupe key was there before do not come back.
-- $1 ids … $17 destinations, arrays in the order of the columns   $18 not before these
-- Locks: the new rows, and their dedupe keys until the transaction ends. The keys are taken in their own
-- order, whatever order the caller has, so that two callers cannot wait for each other; `seq` is drawn
-- first, in the caller's order.
with given as materialized (
  select g.*, nextval('pillarbox.outbox_seq') as seq
  from unnest(
    $1::uuid[], $2::text[], $3::text[], $4::text[], $5::int[], $6::text[], $7::text[], $8::uuid[], $9::text[],
    $10::text[], $11::text[], $12::text[], $13::bytea[], $14::text[], $15::text[], $16::text[], $17::text[],
    $18::text[]
  ) as g (
    id, namespace, topic, event_type, event_version, aggregate_type, aggregate_id, tenant_id, dedupe_key,
    ordering_key, severity, payload, body, content_type, content_encoding, headers, destination, deliver_at
  )
)
insert into pillarbox.outbox_events (
  id, seq, namespace, topic, event_type, event_version, aggregate_type, aggregate_id, tenant_id, dedupe_key,
  ordering_key, severity, payload, body, content_type, content_encoding, headers, destination, next_attempt_at
)
select
  id, seq, namespace, topic, event_type, event_version, aggregate_type, aggregate_id, tenant_id, dedupe_key,
  ordering_key, severity, payload::jsonb, body, content_type, content_encoding, headers::jsonb, destination,
  greatest(deliver_at::timestamptz, now())
from given
order by dedupe_key nulls first, namespace, topic, seq
on conflict (namespace, topic, dedupe_key) where dedupe_key is not null do nothing
returning seq as place, id::text as id
