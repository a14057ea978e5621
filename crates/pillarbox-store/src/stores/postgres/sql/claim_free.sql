-- Claims due rows without a lane for one worker, backlog by backlog.
-- $1 worker   $2 claim id   $3 lease   $4 destinations ('' for none yet)   $5 namespaces   $6 how many of each
-- $7 the lowest seq of a fresh row   $8 the default limit of attempts   $9 bytes at most, or one row
-- $10 for how many rows that have waited room is kept, of each
-- Locks: the chosen rows only; rows locked by others are skipped. Inserts the claim's lease.
-- Index: outbox_events_waiting, outbox_events_fresh; then the ctid of each row. /*delivery*/ is delivery.sql.
--
-- A row that changes between the read and the lock gets a new ctid, which this statement does not see. The next claim
-- takes it.
--
-- Rows in flight are in the same indexes and are skipped by their status. There are only so many: what workers hold.
--
-- Rows that have waited get half of a backlog's room, and what fresh rows leave. So neither they nor fresh rows starve.
with share as materialized (
  select * from unnest($4::text[], $5::text[], $6::bigint[], $7::bigint[], $10::bigint[]) with ordinality
    as s (destination, namespace, most, floor, kept, turn)
), waited as materialized (
  select s.turn, w.* from share s cross join lateral (
    select ctid as version, id, seq, next_attempt_at as at, pillarbox.size(payload, body) as size
    from pillarbox.outbox_events
    where open = 1 and lane is null and status = 'pending'
      and coalesce(destination, '') = s.destination and namespace = s.namespace
      and next_attempt_at <= now() and attempts < coalesce(max_attempts, $8)
    order by coalesce(destination, ''), namespace, next_attempt_at, seq
    limit s.kept
    for update skip locked
  ) as w
), room as materialized (
  select s.turn, s.destination, s.namespace, s.floor, s.most - count(w.version) as most, count(w.version) = s.kept as is_full,
    -- The last of them: the rest comes after it.
    coalesce(max(w.at), '-infinity') as at, coalesce((array_agg(w.seq order by w.at desc, w.seq desc))[1], 0) as seq
  from share s left join waited w on w.turn = s.turn
  group by s.turn, s.destination, s.namespace, s.floor, s.most, s.kept
), fresh as materialized (
  select r.turn, f.* from room r cross join lateral (
    select ctid as version, id, seq, '-infinity'::timestamptz as at, pillarbox.size(payload, body) as size
    from pillarbox.outbox_events
    where open = 0 and lane is null and status = 'pending'
      and coalesce(destination, '') = r.destination and namespace = r.namespace and seq >= r.floor
      and next_attempt_at <= now() and attempts < coalesce(max_attempts, $8)
    order by coalesce(destination, ''), namespace, seq
    limit r.most
    for update skip locked
  ) as f
), room_left as materialized (
  select r.turn, r.destination, r.namespace, r.at, r.seq, r.most - count(f.version) as most
  from room r left join fresh f on f.turn = r.turn
  where r.is_full
  group by r.turn, r.destination, r.namespace, r.at, r.seq, r.most
), rest as materialized (
  select r.turn, w.* from room_left r cross join lateral (
    select ctid as version, id, seq, next_attempt_at as at, pillarbox.size(payload, body) as size
    from pillarbox.outbox_events
    where open = 1 and lane is null and status = 'pending'
      and coalesce(destination, '') = r.destination and namespace = r.namespace
      -- Members of a family have one seq, so the last of those may not be alone.
      and (next_attempt_at, seq) >= (r.at, r.seq) and ctid not in (select version from waited)
      and next_attempt_at <= now() and attempts < coalesce(max_attempts, $8)
    order by coalesce(destination, ''), namespace, next_attempt_at, seq
    limit r.most
    for update skip locked
  ) as w
), measured as (
  select version, id, size, sum(size) over (order by turn, rank, at, seq rows unbounded preceding) as total
  from (
    select *, 1 as rank from waited union all select *, 2 from fresh union all select *, 3 from rest
  ) as candidate
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
