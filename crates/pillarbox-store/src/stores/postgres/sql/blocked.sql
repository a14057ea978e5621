-- Blocked keys: their first unfinished row failed or is dead. Oldest first.
-- $1 namespaces, or null for all   $2 how many   $3 up to how many rows behind a head are counted
-- Index: outbox_events_blocking, then outbox_events_keyed. Reads at most 10,000 failures.
--
-- A head without a destination blocks its key at every destination. The first thousand destinations that have rows with a
-- key are checked, by name.
with recursive name as (
  select ''::text collate "C" as name, 0 as step
  union all
  select next.name, s.step + 1 from name s cross join lateral (
    select coalesce(destination, '') as name from pillarbox.outbox_events
    where open < 3 and lane is not null and coalesce(destination, '') > s.name
    order by coalesce(destination, ''), namespace, lane, ordering_key, seq limit 1
  ) as next
  where s.step < 1000
), failed as materialized (
  select id, seq, namespace, destination, lane, ordering_key, status, attempts, last_error, created_at,
    next_attempt_at
  from pillarbox.outbox_events
  where open in (1, 2) and lane is not null and (status = 'dead' or (status = 'pending' and attempts > 0))
    and ($1::text[] is null or namespace = any($1))
  order by seq
  limit 10000
), head as materialized (
  select f.* from failed f
  where not exists (
    select from pillarbox.outbox_events o
    where o.open < 3 and o.lane is not null
      and coalesce(o.destination, '') = coalesce(f.destination, '') and o.namespace = f.namespace
      and o.lane = f.lane and o.ordering_key = f.ordering_key and o.seq < f.seq)
  and not exists (
    select from pillarbox.outbox_events o
    where o.open < 3 and o.lane is not null
      and coalesce(o.destination, '') = '' and o.namespace = f.namespace
      and o.lane = f.lane and o.ordering_key = f.ordering_key and o.seq < f.seq)
  order by f.seq
  limit $2
)
select h.id as head, h.seq, h.namespace, nullif(h.destination, '') as destination, h.ordering_key, h.status, h.attempts,
  h.last_error as reason, case when isfinite(h.created_at) then extract(epoch from now() - h.created_at) else 0 end::float8 as age,
  case when h.status = 'pending' then h.next_attempt_at end as next_attempt_at, (
    select count(*) from (
      select from name n cross join lateral (
        select from pillarbox.outbox_events o
        where o.open < 3 and o.lane is not null
          and coalesce(o.destination, '') = n.name and o.namespace = h.namespace
          and o.lane = h.lane and o.ordering_key = h.ordering_key and o.seq > h.seq
        limit $3
      ) as one
      where n.name = coalesce(h.destination, '') or coalesce(h.destination, '') = ''
      limit $3
    ) as rest
  ) as behind
from head h
order by h.seq
