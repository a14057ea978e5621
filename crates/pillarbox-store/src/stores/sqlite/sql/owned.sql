-- The namespaces whose lane is this worker's to claim from.
-- ?1 worker
select namespace from pillarbox_lanes
where owner = ?1 and not leaving and leased_until >= strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
