-- Writes a worker's heartbeat.
-- ?1 worker   ?2 host   ?3 version   ?4 namespaces as a JSON array, or null for all
-- ?5 its time to live, such as '+10.000 seconds'   ?6 claimed   ?7 delivered   ?8 failed
-- ?9 breakers that are not closed, as a JSON object   ?10 what it serves, as a JSON object
insert into pillarbox_workers (id, host, version, scope, ttl, claimed, delivered, failed, breakers, serves)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
on conflict (id) do update
set host = excluded.host, version = excluded.version, scope = excluded.scope, ttl = excluded.ttl,
    claimed = excluded.claimed, delivered = excluded.delivered, failed = excluded.failed, breakers = excluded.breakers,
    serves = excluded.serves,
    seen_at = strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
