-- Deregisters a worker, and ends its leases of lane ranges, adopted tables and pruning, so that others take them at once. By the
-- simple protocol; /*worker*/ is its id.
-- Locks: the worker's ranges, in their order; waits for running claims from them.
with mine as materialized (
  select namespace, destination, number from pillarbox.lane_ranges where owner = /*worker*/
  order by namespace, destination, number
  for update
), freed as (
  update pillarbox.lane_ranges l set owner = null, leased_until = null, leaving = false
  from mine m
  where l.namespace = m.namespace and l.destination = m.destination and l.number = m.number
), released as (
  update pillarbox.importers set leased_until = '-infinity' where owner = /*worker*/
), pruner as (
  update pillarbox.pruners set leased_until = '-infinity' where owner = /*worker*/
)
delete from pillarbox.workers where id = /*worker*/
