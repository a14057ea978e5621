-- The lanes that a worker leases.
-- ?1 worker   ?2 namespaces as a JSON array
select namespace, leaving from pillarbox_lanes
where owner = ?1 and namespace in (select value from json_each(?2))
  and leased_until >= strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
order by namespace
