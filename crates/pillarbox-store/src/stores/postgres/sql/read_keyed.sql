-- Reads fresh rows with a key of the lanes that this worker owns, in the order of insertion, for a claim of them.
-- $1 worker   $2 claim id   $3 the default limit of attempts
-- and of each backlog: $4 destination ('' for none yet)   $5 namespace   $6 how many
-- and of each bucket of 128 lanes, in the order in which they are read: $7 the number of its backlog   $8 its own number
-- $9 from which seq   $10 how many at most
-- and: $11 take it that every backlog has barriers, without a look
-- Locks: the lane ranges of the rows for share, until the claim has ended. So no other worker leases them meanwhile. A range
-- that is being leased is skipped, and none is locked if there is no row.
-- Index: outbox_events_fresh_keyed; outbox_events_tried and outbox_events_keyed once per backlog.
with share as materialized (
  -- The look reads past the finished rows of a backlog, which is slow while another transaction holds an old snapshot.
  select s.*,
    $11 or coalesce((select true from pillarbox.outbox_events
      where open in (1, 2) and lane is not null and coalesce(destination, '') = s.destination and namespace = s.namespace
      order by coalesce(destination, ''), namespace, lane, ordering_key, seq limit 1), false)
    or s.destination <> '' and coalesce((select true from pillarbox.outbox_events
      where open < 3 and lane is not null and coalesce(destination, '') = '' and namespace = s.namespace
      order by coalesce(destination, ''), namespace, lane, ordering_key, seq limit 1), false) as has_barriers
  from unnest($4::text[], $5::text[], $6::bigint[]) with ordinality as s (destination, namespace, most, turn)
), mine as materialized (
  select s.turn, range_agg(int4range(l.number * 4096 / l.ranges, (l.number + 1) * 4096 / l.ranges)) as lanes
  from share s cross join lateral (
    select * from pillarbox.lane_ranges where namespace = s.namespace and destination = s.destination
  ) as l
  where l.owner = $1 and l.leased_until >= now() and not l.leaving
  group by s.turn
), bucket as materialized (
  select b.turn, b.place, b.number, b.floor, b.most
  from unnest($7::bigint[], $8::int[], $9::bigint[], $10::bigint[]) with ordinality
    as b (turn, number, floor, most, place)
  join mine m on m.turn = b.turn and m.lanes && int4range(b.number * 128, b.number * 128 + 128)
  order by b.place
), read as materialized (
  -- Bucket by bucket. A later one is not read if those before it fill the share.
  select s.turn, s.has_barriers, r.* from share s cross join lateral (
    select b.place, b.number, e.* from bucket b cross join lateral (
      select ctid as version, id, seq, lane, ordering_key, pillarbox.size(payload, body) as size,
        -- Not now(), when this transaction began: a row that was inserted since would count as not due, and the next claim reads on
        -- behind it.
        status = 'pending' and next_attempt_at <= clock_timestamp() and attempts < coalesce(max_attempts, $3) as ready,
        claim_id is not distinct from $2 as is_ours
      from pillarbox.outbox_events
      where open = 0 and lane is not null
        and coalesce(destination, '') = s.destination and namespace = s.namespace
        and lane >> 7 = b.number and seq >= b.floor
      order by coalesce(destination, ''), namespace, lane >> 7, seq
      limit b.most
    ) as e
    where b.turn = s.turn
    limit s.most
  ) as r
), ours as materialized (
  select used.turn, int4range(l.number * 4096 / l.ranges, (l.number + 1) * 4096 / l.ranges) as lanes
  from (
    select r.turn, range_agg(int4range(r.number * 128, r.number * 128 + 128)) as lanes
    from (select distinct turn, number from read) as r
    group by r.turn
  ) as used
  join share s on s.turn = used.turn
  join pillarbox.lane_ranges l on l.namespace = s.namespace and l.destination = s.destination
  where l.owner = $1 and l.leased_until >= now() and not l.leaving
    and int4range(l.number * 4096 / l.ranges, (l.number + 1) * 4096 / l.ranges) && used.lanes
  for share of l skip locked
), owned as materialized (
  select turn, range_agg(lanes) as lanes from ours group by turn
)
select r.turn, r.place, r.version::text as version, r.id, r.seq, r.lane, r.ordering_key, r.size,
  r.ready and coalesce(o.lanes @> r.lane::int, false) as ready, r.is_ours, r.has_barriers
from read r left join owned o on o.turn = r.turn
order by r.place, r.seq
