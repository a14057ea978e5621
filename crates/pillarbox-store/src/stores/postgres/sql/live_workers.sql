-- The workers that are alive, in the order of their start.
select id::text as owner, array_to_json(scope)::text as scope, serves::text as serves
from pillarbox.workers
where alive_until >= now()
order by started_at, owner
