-- The workers with a heartbeat in the last day, the latest start first.
select w.id, w.host, w.version, w.scope, w.started_at, w.seen_at, w.alive_until >= now() as alive, w.claimed,
  w.delivered, w.failed, w.breakers, (
    select coalesce(sum((l.number + 1) * 4096 / l.ranges - l.number * 4096 / l.ranges), 0)::int
    from pillarbox.lane_ranges l where l.owner = w.id and l.leased_until >= now()
  ) as lanes
from pillarbox.workers w
where w.seen_at >= now() - interval '1 day'
order by w.started_at desc
