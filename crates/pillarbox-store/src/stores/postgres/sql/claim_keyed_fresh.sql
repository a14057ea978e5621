-- Claims fresh rows with a key from the lanes that this worker owns, in the order of insertion. The claim from key to key
-- (claim_keyed.sql) takes the keys that have a row that was tried before.
-- $1 worker   $2 claim id   $3 lease   $4 the default limit of attempts   $5 bytes at most, or one row
-- and of each backlog: $6 destination ('' for none yet)   $7 namespace   $8 how many   $9 below it is no unfinished fresh row
-- and of each bucket of 128 lanes, in the order in which they are read: $10 the number of its backlog   $11 its own number
-- $12 from which seq   $13 how many at most
-- Returns the claimed rows as delivery.sql has them, and in the first one the seq from which to read each bucket next (places,
-- floors), how many rows were moved, and whether a bucket may have more. If no row is claimed, the id of the only row is null.
-- Locks: the lane ranges of the rows for share, and the rows for update; those locked by others are skipped. Inserts the
-- claim's lease.
-- Index: outbox_events_fresh_keyed; outbox_events_keyed and outbox_events_tried once per key; then the ctid of each row.
--
-- A row is claimed only with every earlier unfinished row of its key. Those are fresh and in the same bucket, so they were read
-- before it, or are found by the probe for earlier rows, or were tried before. A row that changed since it was read is not
-- locked, and no later row of its key is claimed. Rows that this claim has taken before, in another statement, count as claimed.
--
-- Rows behind one that was tried before are claimed by their key from here on. Otherwise every claim would read the rows behind
-- a dead one again.
with share as materialized (
  select s.*,
    coalesce((select true from pillarbox.outbox_events
      where open in (1, 2) and lane is not null and coalesce(destination, '') = s.destination and namespace = s.namespace
      order by coalesce(destination, ''), namespace, lane, ordering_key, seq limit 1), false) as has_tried,
    s.destination <> '' and coalesce((select true from pillarbox.outbox_events
      where open < 3 and lane is not null and coalesce(destination, '') = '' and namespace = s.namespace
      order by coalesce(destination, ''), namespace, lane, ordering_key, seq limit 1), false) as has_unrouted
  from unnest($6::text[], $7::text[], $8::bigint[], $9::bigint[]) with ordinality
    as s (destination, namespace, most, bottom, turn)
), mine as materialized (
  select s.turn, range_agg(int4range(l.number * 4096 / l.ranges, (l.number + 1) * 4096 / l.ranges)) as lanes
  from share s cross join lateral (
    select * from pillarbox.lane_ranges where namespace = s.namespace and destination = s.destination
  ) as l
  where l.owner = $1 and l.leased_until >= now() and not l.leaving
  group by s.turn
), bucket as materialized (
  select b.turn, b.place, b.number, b.floor, b.most, m.lanes
  from unnest($10::bigint[], $11::int[], $12::bigint[], $13::bigint[]) with ordinality
    as b (turn, number, floor, most, place)
  join mine m on m.turn = b.turn and m.lanes && int4range(b.number * 128, b.number * 128 + 128)
  order by b.place
), read as materialized (
  -- Bucket by bucket. A later one is not read if those before it fill the share.
  select s.turn, r.* from share s cross join lateral (
    select b.place, b.most, e.* from bucket b cross join lateral (
      select ctid as version, id, seq, lane, ordering_key, pillarbox.size(payload, body) as size,
        status = 'pending' and next_attempt_at <= now() and attempts < coalesce(max_attempts, $4)
          and b.lanes @> lane::int as ready,
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
), key as materialized (
  select turn, lane, ordering_key,
    min(seq) filter (where ready) as head, min(seq) filter (where not ready and not is_ours) as stop,
    array_agg(version order by seq) as versions, array_agg(id order by seq) as ids, array_agg(seq order by seq) as seqs,
    array_agg(size order by seq) as sizes, array_agg(place order by seq) as places, array_agg(ready order by seq) as readies
  from read
  group by turn, lane, ordering_key
), checked as materialized (
  select k.*, tried.seq as tried,
    -- Up to here, exclusively, rows may be claimed.
    case when earlier.seq is null then coalesce(least(k.stop, tried.seq, unrouted.seq), 9223372036854775807)
      else k.head end as until
  from key k
  join share s on s.turn = k.turn
  left join lateral (
    select seq from pillarbox.outbox_events
    where open < 3 and lane is not null and coalesce(destination, '') = s.destination and namespace = s.namespace
      and lane = k.lane and ordering_key = k.ordering_key and seq >= s.bottom and seq < k.head
      and claim_id is distinct from $2
    order by coalesce(destination, ''), namespace, lane, ordering_key, seq
    limit 1
  ) as earlier on true
  left join lateral (
    select seq from pillarbox.outbox_events
    where s.has_tried
      and open in (1, 2) and lane is not null and coalesce(destination, '') = s.destination and namespace = s.namespace
      and lane = k.lane and ordering_key = k.ordering_key
    order by coalesce(destination, ''), namespace, lane, ordering_key, seq
    limit 1
  ) as tried on true
  left join lateral (
    select seq from pillarbox.outbox_events
    where s.has_unrouted
      and open < 3 and lane is not null and coalesce(destination, '') = '' and namespace = s.namespace
      and lane = k.lane and ordering_key = k.ordering_key
    order by coalesce(destination, ''), namespace, lane, ordering_key, seq
    limit 1
  ) as unrouted on true
), ours as materialized (
  select l.namespace, l.destination, int4range(l.number * 4096 / l.ranges, (l.number + 1) * 4096 / l.ranges) as lanes
  from (
    select s.namespace, s.destination, range_agg(int4range(c.lane, c.lane + 1)) as lanes
    from checked c join share s on s.turn = c.turn
    where c.head < c.until or c.tried is not null
    group by s.namespace, s.destination
  ) as used
  join pillarbox.lane_ranges l on l.namespace = used.namespace and l.destination = used.destination
  where l.owner = $1 and l.leased_until >= now() and not l.leaving
    and int4range(l.number * 4096 / l.ranges, (l.number + 1) * 4096 / l.ranges) && used.lanes
  for share of l skip locked
), owned as materialized (
  select s.turn, range_agg(o.lanes) as lanes from share s
  join ours o on o.namespace = s.namespace and o.destination = s.destination
  group by s.turn
), candidate as materialized (
  select c.turn, c.lane, c.ordering_key, r.version, r.id, r.seq, r.size, r.place, r.ready,
    o.lanes is not null and r.ready and r.seq < c.until as is_next,
    o.lanes is not null and r.ready and coalesce(r.seq > c.tried, false) as is_behind,
    sum(r.size) filter (where o.lanes is not null and r.ready and r.seq < c.until)
      over (order by r.place, r.seq rows unbounded preceding) as total
  from checked c
  left join owned o on o.turn = c.turn and o.lanes @> c.lane::int
  cross join lateral unnest(c.versions, c.ids, c.seqs, c.sizes, c.places, c.readies)
    as r (version, id, seq, size, place, ready)
), locked as materialized (
  -- By ctid. A row that changed meanwhile is not found, and counts as locked.
  select ctid as version from pillarbox.outbox_events
  where ctid = any(array(
    select version from candidate where (is_next and (total <= $5 or total = size)) or is_behind
  ))
  for update skip locked
), decided as materialized (
  -- By `in`, which is hashed. The planner expects one row on each side, and a join would compare 1,000 rows with 1,000.
  select *, is_next and is_locked and bool_and(is_locked or not is_next)
      over (partition by turn, lane, ordering_key order by seq rows unbounded preceding) as is_taken,
    is_behind and is_locked as is_moved
  from (select *, version in (select version from locked) as is_locked from candidate) as c
), moved as (
  update pillarbox.outbox_events e
  set by_key = true, updated_at = now()
  where e.ctid = any(array(select version from decided where is_moved))
  returning e.id
), lease as (
  insert into pillarbox.leases (claim_id, first_row, worker, until, rows)
  select $2, (array_agg(id))[1], $1, now() + $3, array_agg(id) from decided where is_taken having count(*) > 0
), claimed as (
  update pillarbox.outbox_events e
  set status = 'processing', attempts = greatest(e.attempts, 0) + 1, updated_at = now(),
      locked_by = $1, locked_until = now() + $3, claim_id = $2, own_lease = false
  from (select version, row_number() over () as place from decided where is_taken) as c
  where e.ctid = c.version
  returning /*delivery*/ c.place
), progress as (
  select array_agg(place) as places, array_agg(floor) as floors, (select count(*) from moved) as moved,
    coalesce(bool_or(is_full), false) as has_more
  from (
    select d.place, coalesce(min(d.seq) filter (where d.ready and not d.is_taken and not d.is_moved), max(d.seq) + 1) as floor,
      count(*) >= min(r.most) as is_full
    from decided d join (select distinct place, most from read) as r on r.place = d.place
    group by d.place
  ) as b
)
select c.*, p.places, p.floors, p.moved, p.has_more
from (select *, 1 as first from progress) as p
full join claimed c on c.place = p.first
