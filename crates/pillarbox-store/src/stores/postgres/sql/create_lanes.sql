-- Creates the lane ranges of backlogs that have none.
-- $1 namespaces   $2 destinations   $3 ranges   $4 wanted (one of each for a backlog)
-- Locks: waits for others that create or delete ranges of the same backlogs, in their order.
--
-- The first range decides: without it there is none, and the worker that inserts it inserts the others. Two workers with
-- different numbers of ranges would otherwise leave ranges of both, which overlap.
with given as materialized (
  select * from unnest($1::text[], $2::text[], $3::int[], $4::int[]) as g (namespace, destination, ranges, wanted)
  order by namespace, destination
), first as (
  insert into pillarbox.lane_ranges (namespace, destination, number, ranges, wanted)
  select namespace, destination, 0, ranges, wanted from given
  on conflict (namespace, destination, number) do nothing
  returning namespace, destination, ranges, wanted
)
insert into pillarbox.lane_ranges (namespace, destination, number, ranges, wanted)
select namespace, destination, number, ranges, wanted
from first cross join lateral generate_series(1, ranges - 1) as number
