-- Divides the lanes of a namespace into another number of ranges, if none is leased.
-- $1 namespace   $2 how many
-- Locks: all ranges of the namespace, in their order; waits for running claims from them.
with before as materialized (
  select number, owner is not null and leased_until >= now() as held
  from pillarbox.lane_ranges where namespace = $1
  order by number
  for update
), free as materialized (
  select not coalesce(bool_or(held), false) as all from before
), kept as (
  update pillarbox.lane_ranges set ranges = $2, wanted = $2, owner = null, leased_until = null, leaving = false
  where namespace = $1 and number < $2 and (select free.all from free)
), gone as (
  delete from pillarbox.lane_ranges
  where namespace = $1 and number >= $2 and (select free.all from free)
)
insert into pillarbox.lane_ranges (namespace, number, ranges, wanted)
select $1, number, $2, $2 from generate_series(0, $2 - 1) as number
where (select free.all from free) and number > (select max(before.number) from before)
