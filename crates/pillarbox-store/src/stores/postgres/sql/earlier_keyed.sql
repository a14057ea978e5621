-- Of these keys, those that have an unfinished row before this one that is not claimed yet.
-- of each key: $1 destination ('' for none yet)   $2 namespace   $3 lane   $4 key   $5 before which seq   $6 from which seq
-- $7 claim id
-- Index: outbox_events_keyed, one probe per key.
select k.place
from unnest($1::text[], $2::text[], $3::smallint[], $4::text[], $5::bigint[], $6::bigint[]) with ordinality
  as k (destination, namespace, lane, key, head, bottom, place)
cross join lateral (
  select from pillarbox.outbox_events
  where open < 3 and lane is not null and coalesce(destination, '') = k.destination and namespace = k.namespace
    and lane = k.lane and ordering_key = k.key and seq >= k.bottom and seq < k.head
    and claim_id is distinct from $7
  order by coalesce(destination, ''), namespace, lane, ordering_key, seq
  limit 1
) as earlier
