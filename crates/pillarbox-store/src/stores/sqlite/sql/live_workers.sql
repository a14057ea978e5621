-- The workers that are alive.
select id, scope, serves from pillarbox_workers
where strftime('%Y-%m-%dT%H:%M:%f000Z', seen_at, ttl) >= strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
  -- A heartbeat in the future was written before the clock was set back.
  and seen_at <= strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', ttl)
order by started_at, id
