-- The lanes that a worker leases.
-- ?1 worker   ?2 backlogs as a JSON array of [namespace, destination]
select namespace, destination, leaving from pillarbox_lanes
where owner = ?1 and (namespace, destination) in (select value ->> 0, value ->> 1 from json_each(?2))
  and leased_until >= strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
order by namespace, destination
