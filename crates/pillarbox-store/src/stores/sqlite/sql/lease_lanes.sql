-- Leases free lanes that this worker should have.
-- ?1 worker   ?2 backlogs that it should have, as a JSON array of [namespace, destination]
-- ?3 lease, such as '+30.000 seconds'
-- A lane is free if it has no owner or its lease expired. It is also free if its lease is longer than any lease can be,
-- because the clock was set back.
insert into pillarbox_lanes (namespace, destination, owner, leased_until)
select value ->> 0, value ->> 1, ?1, strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', ?3)
from json_each(?2)
where true
on conflict (namespace, destination) do update
set owner = excluded.owner, leased_until = excluded.leased_until, leaving = 0
where leased_until < strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
  or leased_until > strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', '+25 hours')
