-- Writes many events in the caller's transaction. Those whose dedupe key was there before do not come back.
-- $1 ids   $2 payloads   $3 bodies   $4 destinations   $5 not before these   $6 … the event's columns, then dedupe keys
-- Locks: the new rows, and their dedupe keys until the transaction ends. The keys are taken in their own
-- order, whatever order the caller has, so that two callers cannot wait for each other; `seq` is drawn
-- first, in the caller's order.
with given as materialized (
  select g.*, nextval('pillarbox.outbox_seq') as seq
  from unnest(
    /*event_arrays*/ $1::uuid[], $2::text[], $3::bytea[], $4::text[], $5::text[]
  ) as g (
    /*event_columns*/ dedupe_key, id, payload, body, destination, deliver_at
  )
)
insert into pillarbox.outbox_events (
  /*event_columns*/ dedupe_key, id, seq, payload, body, destination, next_attempt_at
)
select
  /*event_values*/ dedupe_key, id, seq, payload::jsonb, body, destination, greatest(deliver_at::timestamptz, now())
from given
order by dedupe_key nulls first, namespace, topic, seq
on conflict (namespace, topic, dedupe_key) where dedupe_key is not null do nothing
returning seq as place, id::text as id
