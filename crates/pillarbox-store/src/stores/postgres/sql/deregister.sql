-- Says that a worker is no more: its lanes are free, and so are the tables that it imported from. By the simple
-- protocol; /*worker*/ is who.
-- Locks: the worker's ranges, in their order; waits for claims from them that are under way.
with mine as materialized (
  select namespace, number from pillarbox.lane_ranges where owner = /*worker*/
  order by namespace, number
  for update
), freed as (
  update pillarbox.lane_ranges l set owner = null, leased_until = null, leaving = false
  from mine m
  where l.namespace = m.namespace and l.number = m.number
), handed_over as (
  update pillarbox.importers set leased_until = '-infinity' where owner = /*worker*/
)
delete from pillarbox.workers where id = /*worker*/
