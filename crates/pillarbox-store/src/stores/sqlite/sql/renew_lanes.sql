-- Renews this worker's lanes, and sets `leaving` on those that another worker should have.
-- ?1 worker   ?2 backlogs as a JSON array of [namespace, destination]   ?3 lease, such as '+30.000 seconds'
-- ?4 those of the backlogs that it should have
update pillarbox_lanes
set leased_until = strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', ?3),
    leaving = (namespace, destination) not in (select value ->> 0, value ->> 1 from json_each(?4))
where owner = ?1 and (namespace, destination) in (select value ->> 0, value ->> 1 from json_each(?2))
  and leased_until >= strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
