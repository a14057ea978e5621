-- Writes a worker's heartbeat, and prunes workers without a heartbeat for a day. By the simple protocol.
-- /*worker*/, /*host*/, /*version*/, /*scope*/, /*ttl*/, /*claimed*/, /*delivered*/, /*failed*/, /*breakers*/ and
-- /*serves*/ are values.
with gone as (
  delete from pillarbox.workers where seen_at < now() - interval '1 day' and id <> /*worker*/
)
insert into pillarbox.workers (id, host, version, scope, alive_until, claimed, delivered, failed, breakers, serves)
values (/*worker*/, /*host*/, /*version*/, /*scope*/, now() + /*ttl*/, /*claimed*/, /*delivered*/, /*failed*/,
  /*breakers*/, /*serves*/)
on conflict (id) do update
set host = excluded.host, version = excluded.version, scope = excluded.scope, seen_at = now(),
    alive_until = excluded.alive_until, claimed = excluded.claimed, delivered = excluded.delivered,
    failed = excluded.failed, breakers = excluded.breakers, serves = excluded.serves
