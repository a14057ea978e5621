-- The backlogs whose lane this worker may claim from.
-- ?1 worker
select namespace, destination from pillarbox_lanes
where owner = ?1 and not leaving and leased_until >= strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
