-- Leases free lanes that this worker should have.
-- ?1 worker   ?2 namespaces as a JSON array   ?3 lease, such as '+30.000 seconds'
-- A lane is free if it has no owner or its lease expired. It is also free if its lease is longer than any lease can be,
-- because the clock was set back.
insert into pillarbox_lanes (namespace, owner, leased_until)
select value, ?1, strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', ?3)
from json_each(?2) as wanted
where not exists (
  select 1 from pillarbox_workers as other
  where other.id < ?1
    and strftime('%Y-%m-%dT%H:%M:%f000Z', other.seen_at, other.ttl) >= strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
    and other.seen_at <= strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', other.ttl)
    and (other.scope is null or wanted.value in (select value from json_each(other.scope)))
)
on conflict (namespace) do update
set owner = excluded.owner, leased_until = excluded.leased_until, leaving = 0
where leased_until < strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
  or leased_until > strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', '+25 hours')
