-- The lane ranges of some backlogs, and the workers that are alive, in the order of their start. By the simple protocol.
-- /*namespaces*/ and /*destinations*/ are the lists of the backlogs.
-- Index: the primary key.
with given as materialized (
  select * from unnest(array[/*namespaces*/'']::text[], array[/*destinations*/'']::text[]) as g (namespace, destination)
)
select l.namespace, l.destination, l.number, l.ranges, l.wanted, l.owner::text as owner,
  l.owner is not null and l.leased_until >= now() as held, l.leaving,
  coalesce(extract(epoch from l.leased_until - now()), 0)::float8 as remaining,
  null::timestamptz as started_at, null::text as scope, null::text as serves
from given g cross join lateral (
  select * from pillarbox.lane_ranges l where l.namespace = g.namespace and l.destination = g.destination
) as l
union all
select null, null, null, null, null, id::text, null, null, null, started_at, array_to_json(scope)::text, serves::text
from pillarbox.workers
where alive_until >= now()
order by namespace, destination, number, started_at, owner
