-- Writes many events in the caller's transaction, of which some have a dedupe key. Returns how many were written, and their
-- ids if that is not all of them.
-- $1 … as in enqueue_all.sql, then the dedupe keys and each event's place in the caller's order, from 1
-- Locks: the new rows, and their dedupe keys until the transaction ends. The events come sorted by dedupe key, whatever the
-- caller's order, so that two callers cannot deadlock. `seq` is drawn before, in the caller's order.
with written as (
  insert into pillarbox.outbox_events (/*columns*/, dedupe_key, seq)
  select /*values*/, dedupe_key,
    (array(select nextval('pillarbox.outbox_seq') from generate_series(1, cardinality($1::uuid[]))))[place]
  from unnest(/*arrays*/, /*dedupe_key*/::text[], /*places*/::int[]) with ordinality
    as given (/*names*/, dedupe_key, place, ord)
  order by ord
  on conflict (namespace, topic, dedupe_key) where dedupe_key is not null do nothing
  returning id
)
select count(*) as place,
  case when count(*) < cardinality($1::uuid[]) then coalesce(array_to_string(array_agg(id), ','), '') else '' end as id
from written
