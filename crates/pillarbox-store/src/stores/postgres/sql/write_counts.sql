-- Writes who is over its quota. $1 kinds   $2 names   $3 limits, null for a quota that is gone   $4 how many rows are pending
-- Returns who has just gone over its quota, and who is no longer over it.
-- Locks: their rows in over_quota, which enqueue reads without a lock.
-- A holder that was counted twice is written once.
with counted as (
  select distinct on (kind, name) * from unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) as c (kind, name, most, pending)
  order by kind, name
), within as (
  delete from pillarbox.over_quota o using counted c
  where o.kind = c.kind and o.name = c.name and (c.most is null or c.pending <= c.most)
  returning o.kind, o.name, o.max_pending
), beyond as (
  insert into pillarbox.over_quota as o (kind, name, max_pending, counted_at)
  select kind, name, most, clock_timestamp() from counted where pending > most order by kind, name
  on conflict (kind, name) do update set max_pending = excluded.max_pending, counted_at = excluded.counted_at
  returning o.kind, o.name, o.max_pending, o.xmax = 0 as is_new
)
select kind, name, max_pending, true as is_over from beyond where is_new
union all
select kind, name, max_pending, false from within
