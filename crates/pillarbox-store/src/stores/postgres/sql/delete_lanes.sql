-- Deletes the lane ranges of backlogs in which none is leased. Returns of how many backlogs.
-- $1 namespaces   $2 destinations
-- Locks: all ranges of these backlogs, in their order; waits for running claims from them.
--
-- A backlog whose ranges were created again meanwhile is left: not all of its ranges are seen.
with given as materialized (
  select * from unnest($1::text[], $2::text[]) as g (namespace, destination)
), before as materialized (
  select l.namespace, l.destination, l.ranges, l.owner is not null and l.leased_until >= now() as held
  from pillarbox.lane_ranges l join given g on g.namespace = l.namespace and g.destination = l.destination
  order by l.namespace, l.destination, l.number
  for update of l
), free as materialized (
  select namespace, destination from before
  group by namespace, destination
  having not bool_or(held) and count(*) = min(ranges) and count(*) = max(ranges)
), deleted as (
  delete from pillarbox.lane_ranges l using free f
  where l.namespace = f.namespace and l.destination = f.destination
)
select count(*) from free
