-- Claims rows of keys that have a row which was tried before, from the lanes that this worker owns: of each key the first
-- unfinished rows, up to the first that is not pending and due. read_keyed.sql reads the rows of the other keys.
-- $1 worker   $2 claim id   $3 lease   $4 destinations ('' for none yet)   $5 namespaces   $6 how many of each
-- $7 the first lane   $8 the default limit of attempts   $9 bytes at most, or one row   $10 only these lanes
-- Locks: the lane ranges for share, so that no other worker leases them meanwhile. A range that is being leased is
-- skipped, and none is locked if there is nothing to claim. Also the chosen rows for update. A row locked by others is
-- skipped and ends the run of its key. Inserts the claim's lease.
-- Index: outbox_events_tried, outbox_events_keyed; then the ctid of each row, which only the owner changes. /*delivery*/ is
-- delivery.sql.
--
-- Steps from key to key. A key whose first row cannot be claimed (processing, in backoff, dead, exhausted) costs two
-- probes, however many rows follow. For a backlog with a destination, a third probe finds the key's first row without
-- one. No later row may overtake it.
with recursive share as materialized (
  select * from unnest($4::text[], $5::text[], $6::bigint[]) with ordinality
    as s (destination, namespace, most, turn)
), mine as materialized (
  select s.turn, int4range(l.number * 4096 / l.ranges, (l.number + 1) * 4096 / l.ranges) as lanes
  from share s cross join lateral (
    select * from pillarbox.lane_ranges where namespace = s.namespace and destination = s.destination
  ) as l
  where l.owner = $1 and l.leased_until >= now() and not l.leaving
), segment as materialized (
  -- Begins at the first lane and wraps around.
  select s.turn, part.low, part.high, row_number() over (partition by s.turn order by part.around, part.low) as place
  from share s
  cross join lateral (
    select unnest(range_agg(m.lanes) * $10::text::int4multirange) as lanes from mine m where m.turn = s.turn
  ) as merged
  cross join lateral (values
    (greatest(lower(merged.lanes), $7::int), upper(merged.lanes) - 1, 1),
    (lower(merged.lanes), least(upper(merged.lanes), $7::int) - 1, 2)
  ) as part (low, high, around)
  where part.low <= part.high
), stepped as (
  select s.turn, s.destination, s.namespace, s.most, g.place, g.high, g.low::smallint as lane,
    ''::text collate "C" as key, (-9223372036854775808)::bigint as seq, null::bigint as head, null::bigint as barrier,
    false as ready, 0::bigint as found, 0 as step
  from share s join segment g on g.turn = s.turn and g.place = 1
  union all
  select s.turn, s.destination, s.namespace, s.most, next.place, next.high, next.lane, next.key, next.seq,
    next.head, next.barrier, next.ready, s.found + next.ready::int, s.step + 1
  from stepped s
  cross join lateral (
    (select s.place, s.high, head.lane, head.ordering_key as key, 9223372036854775807 as seq, head.seq as head,
       unrouted.seq as barrier,
       head.ready and (unrouted.seq is null or head.seq < unrouted.seq) as ready
     from (
       select lane, ordering_key
       from pillarbox.outbox_events
       where /*which keys*/open in (1, 2) and lane is not null
         and coalesce(destination, '') = s.destination and namespace = s.namespace
         and (lane, ordering_key, seq) > (s.lane, s.key, s.seq) and lane <= s.high
       order by coalesce(destination, ''), namespace, lane, ordering_key, seq
       limit 1
     ) as tried
     cross join lateral (
       select lane, ordering_key, seq,
         status = 'pending' and next_attempt_at <= now() and attempts < coalesce(max_attempts, $8) as ready
       from pillarbox.outbox_events
       where open < 3 and lane is not null
         and coalesce(destination, '') = s.destination and namespace = s.namespace
         and lane = tried.lane and ordering_key = tried.ordering_key
       order by coalesce(destination, ''), namespace, lane, ordering_key, seq
       limit 1
     ) as head
     left join lateral (
       select seq from pillarbox.outbox_events
       where s.destination <> '' and head.ready and open < 3 and lane is not null
         and coalesce(destination, '') = '' and namespace = s.namespace
         and lane = head.lane and ordering_key = head.ordering_key
       order by coalesce(destination, ''), namespace, lane, ordering_key, seq
       limit 1
     ) as unrouted on true)
    union all
    (select g.place, g.high, g.low::smallint, '', -9223372036854775808, null, null, false
     from segment g where g.turn = s.turn and g.place = s.place + 1)
    limit 1
  ) as next
  where s.found < greatest(s.most / 16, least(s.most / 4, 16), 1) and s.step < 2000
), found as materialized (
  select *, (most + count(*) over (partition by turn) - 1) / count(*) over (partition by turn) as each
  from stepped where ready
), ours as materialized (
  select l.namespace, l.destination, int4range(l.number * 4096 / l.ranges, (l.number + 1) * 4096 / l.ranges) as lanes
  from (
    select namespace, destination, range_agg(int4range(lane, lane + 1)) as lanes from found
    group by namespace, destination
  ) as used
  join pillarbox.lane_ranges l on l.namespace = used.namespace and l.destination = used.destination
  where l.owner = $1 and l.leased_until >= now() and not l.leaving
    and int4range(l.number * 4096 / l.ranges, (l.number + 1) * 4096 / l.ranges) && used.lanes
  for share of l skip locked
), keys as materialized (
  select * from found f
  where exists (
    select from ours o
    where o.namespace = f.namespace and o.destination = f.destination and o.lanes @> f.lane::int)
), run as materialized (
  select k.turn, k.step, k.most, r.version, r.id, r.seq, r.size,
    bool_and(r.ready) over (partition by k.turn, k.step order by r.seq rows unbounded preceding) as is_ready
  from keys k cross join lateral (
    select ctid as version, id, seq, pillarbox.size(payload, body) as size,
      status = 'pending' and next_attempt_at <= now() and attempts < coalesce(max_attempts, $8)
        and (k.barrier is null or seq < k.barrier) as ready
    from pillarbox.outbox_events
    where open < 3 and lane is not null
      and coalesce(destination, '') = k.destination and namespace = k.namespace
      and lane = k.lane and ordering_key = k.key and seq >= k.head
    order by coalesce(destination, ''), namespace, lane, ordering_key, seq
    limit k.each
  ) as r
), locked as materialized (
  -- By ctid. A row that changed meanwhile is not found, and counts as locked.
  select ctid as version from pillarbox.outbox_events
  where ctid = any(array(select version from run where is_ready))
  for update skip locked
), unbroken as (
  -- By `in`, which is hashed. The planner expects one row on each side, and a join would compare 1,000 rows with 1,000.
  select *, row_number() over (partition by turn order by step, seq) as rank from (
    select turn, step, most, version, id, seq, size,
      bool_and(version in (select version from locked))
        over (partition by turn, step order by seq rows unbounded preceding) as is_locked
    from run
    where is_ready
  ) as r
  where is_locked
), measured as (
  select version, id, size, sum(size) over (order by turn, step, seq rows unbounded preceding) as total
  from unbroken
  where rank <= most
), chosen as materialized (
  select version, id from measured where total <= $9 or total = size
), lease as (
  insert into pillarbox.leases (claim_id, first_row, worker, until, rows)
  select $2, (array_agg(id))[1], $1, now() + $3, array_agg(id) from chosen having count(*) > 0
)
update pillarbox.outbox_events e
set status = 'processing', attempts = greatest(e.attempts, 0) + 1, updated_at = now(),
    locked_by = $1, locked_until = now() + $3, claim_id = $2, own_lease = false
from chosen c
where e.ctid = c.version
returning /*delivery*/ e.id
