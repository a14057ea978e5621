-- Blocked keys: their first unfinished row failed or is dead. Oldest first.
-- ?1 namespaces as a JSON array, or null for all   ?2 how many   ?3 up to how many rows behind are counted
-- /*tenant e*/ is the tenant
-- Index: outbox_events_blocking, outbox_events_failing; outbox_events_keyed for the rows before and behind.
--
-- Behind a row without a destination, the rows of every destination wait. The first thousand destinations that have rows
-- with a key are searched, by name, because the index begins with the destination.
with recursive step (name, number) as (
  select '', 0
  union all
  select (
    select coalesce(destination, '') from outbox_events
    where lane = 0 and status in ('pending', 'processing', 'dead') and seq is not null
      and coalesce(destination, '') > step.name
    order by coalesce(destination, '') limit 1
  ) as next, number + 1
  from step where next is not null and number < 1000
), named as materialized (
  select name from step
), dead as materialized (
  select rowno, seq from outbox_events as e indexed by outbox_events_blocking
  where status = 'dead' and lane = 0 and (?1 is null or namespace in (select value from json_each(?1))) /*tenant e*/
    and not exists (
      select 1 from outbox_events as other
      where other.lane = 0 and other.status in ('pending', 'processing', 'dead') and other.seq is not null
        and coalesce(other.destination, '') in ('', coalesce(e.destination, ''))
        and other.namespace = e.namespace and other.ordering_key = e.ordering_key and other.seq < e.seq
    )
  order by seq limit ?2
), failing as materialized (
  select rowno, seq from outbox_events as e indexed by outbox_events_failing
  where status = 'pending' and attempts > 0 and lane = 0
    and (?1 is null or namespace in (select value from json_each(?1))) /*tenant e*/
    and not exists (
      select 1 from outbox_events as other
      where other.lane = 0 and other.status in ('pending', 'processing', 'dead') and other.seq is not null
        and coalesce(other.destination, '') in ('', coalesce(e.destination, ''))
        and other.namespace = e.namespace and other.ordering_key = e.ordering_key and other.seq < e.seq
    )
  order by seq limit ?2
), stuck as materialized (
  select rowno, seq from (select * from dead union all select * from failing) order by seq, rowno limit ?2
)
select e.namespace, e.destination, e.ordering_key, e.id, e.seq, e.status, e.attempts, e.last_error,
  max((julianday('now') - julianday(e.created_at)) * 86400.0, 0.0) as age,
  iif(e.status = 'pending', e.next_attempt_at, null) as next_attempt_at, (
    case when coalesce(e.destination, '') = '' then (
      select count(*) from (
        select 1 from named cross join outbox_events as other
        where other.lane = 0 and other.status in ('pending', 'processing', 'dead') and other.seq is not null
          and coalesce(other.destination, '') = named.name
          and other.namespace = e.namespace and other.ordering_key = e.ordering_key and other.seq > e.seq /*tenant other*/
        limit ?3
      )
    ) else (
      select count(*) from (
        select 1 from outbox_events as other
        where other.lane = 0 and other.status in ('pending', 'processing', 'dead') and other.seq is not null
          and coalesce(other.destination, '') = coalesce(e.destination, '')
          and other.namespace = e.namespace and other.ordering_key = e.ordering_key and other.seq > e.seq /*tenant other*/
        limit ?3
      )
    ) end
  ) as behind
from stuck
cross join outbox_events as e on e.rowno = stuck.rowno
order by e.seq, e.rowno
