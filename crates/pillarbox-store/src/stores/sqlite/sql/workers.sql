-- The workers with a heartbeat in the last day, the latest start first.
select id, host, version, scope, started_at, seen_at, claimed, delivered, failed, breakers,
  strftime('%Y-%m-%dT%H:%M:%f000Z', seen_at, ttl) >= strftime('%Y-%m-%dT%H:%M:%f000Z', 'now') as alive, (
    select count(*) from pillarbox_lanes
    where owner = pillarbox_workers.id and leased_until >= strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
  ) as backlogs
from pillarbox_workers
where seen_at >= strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', '-1 day')
order by started_at desc, id
