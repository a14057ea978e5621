-- Releases lanes.
-- ?1 worker   ?2 namespaces as a JSON array, or null for all
delete from pillarbox_lanes
where owner = ?1 and (?2 is null or namespace in (select value from json_each(?2)))
