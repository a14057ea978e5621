-- Renews this worker's lanes, and sets `leaving` on those that another worker should have.
-- ?1 worker   ?2 namespaces as a JSON array   ?3 lease, such as '+30.000 seconds'
-- The lane of a namespace belongs to the live worker with the lowest id that has the namespace in its scope.
update pillarbox_lanes
set leased_until = strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', ?3),
    leaving = exists (
      select 1 from pillarbox_workers as other
      where other.id < ?1
        and strftime('%Y-%m-%dT%H:%M:%f000Z', other.seen_at, other.ttl) >= strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
        -- A heartbeat in the future was written before the clock was set back.
        and other.seen_at <= strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', other.ttl)
        and (other.scope is null
          or pillarbox_lanes.namespace in (select value from json_each(other.scope)))
    )
where owner = ?1 and namespace in (select value from json_each(?2))
  and leased_until >= strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
