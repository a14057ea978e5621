-- Releases lanes.
-- ?1 worker   ?2 backlogs as a JSON array of [namespace, destination], or null for all
delete from pillarbox_lanes
where owner = ?1
  and (?2 is null or (namespace, destination) in (select value ->> 0, value ->> 1 from json_each(?2)))
