-- Of these keys, the first row that was tried before, and the first one without a destination if the key's backlog has one.
-- of each key: $1 destination ('' for none yet)   $2 namespace   $3 lane   $4 key
-- Index: outbox_events_tried, outbox_events_keyed; one probe of each per key.
select k.place, tried.seq as tried, unrouted.seq as unrouted
from unnest($1::text[], $2::text[], $3::smallint[], $4::text[]) with ordinality
  as k (destination, namespace, lane, key, place)
left join lateral (
  select seq from pillarbox.outbox_events
  where open in (1, 2) and lane is not null and coalesce(destination, '') = k.destination and namespace = k.namespace
    and lane = k.lane and ordering_key = k.key
  order by coalesce(destination, ''), namespace, lane, ordering_key, seq
  limit 1
) as tried on true
left join lateral (
  select seq from pillarbox.outbox_events
  where k.destination <> ''
    and open < 3 and lane is not null and coalesce(destination, '') = '' and namespace = k.namespace
    and lane = k.lane and ordering_key = k.key
  order by coalesce(destination, ''), namespace, lane, ordering_key, seq
  limit 1
) as unrouted on true
where tried.seq is not null or unrouted.seq is not null
