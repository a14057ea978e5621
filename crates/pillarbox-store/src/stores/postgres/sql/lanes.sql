-- The lane ranges of some namespaces, and the workers that are alive. By the simple protocol.
-- /*namespaces*/ is their list.
select namespace, number, ranges, wanted, owner::text as owner, owner is not null and leased_until >= now() as held, leaving,
  coalesce(extract(epoch from leased_until - now()), 0)::float8 as remaining
from pillarbox.lane_ranges where namespace in (/*namespaces*/'')
union all
-- One row per namespace and live worker that has it in its scope.
select name, null, null, null, id::text, null, null, null
from pillarbox.workers cross join unnest(array[/*namespaces*/'']) as name
where alive_until >= now() and (scope is null or name = any(scope))
order by namespace, number
