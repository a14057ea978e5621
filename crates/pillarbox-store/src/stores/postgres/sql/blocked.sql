-- Blocked keys: their first unfinished row failed or is dead. Oldest first.
-- $1 namespaces, or null for all   $2 how many   $3 up to how many rows behind a head are counted
-- $4 the tenant, or null for all
-- Index: outbox_events_tried, then outbox_events_keyed. Steps through the keys with a row that was tried, 10,000 at most.
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
), tried as (
  -- The first row of each key that was tried.
  select null::uuid as id, ''::text collate "C" as destination, ''::text collate "C" as namespace, (-1)::smallint as lane,
    ''::text collate "C" as ordering_key, 0 as step
  union all
  select next.*, t.step + 1 from tried t cross join lateral (
    select id, coalesce(destination, ''), namespace, lane, ordering_key
    from pillarbox.outbox_events
    where open in (1, 2) and lane is not null
      and (coalesce(destination, ''), namespace, lane, ordering_key, seq)
        > (t.destination, t.namespace, t.lane, t.ordering_key, 9223372036854775807)
    order by coalesce(destination, ''), namespace, lane, ordering_key, seq
    limit 1
  ) as next
  where t.step < 10000
), failed as materialized (
  select e.id, e.seq, e.namespace, e.destination, e.lane, e.ordering_key, e.status, e.attempts, e.last_error, e.created_at,
    e.next_attempt_at
  from tried t cross join lateral (select * from pillarbox.outbox_events where id = t.id limit 1) as e
  where (e.status = 'dead' or (e.status = 'pending' and e.attempts > 0))
    and ($1::text[] is null or e.namespace = any($1)) and ($4::uuid is null or e.tenant_id = $4)
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
          and ($4::uuid is null or o.tenant_id = $4)
        limit $3
      ) as one
      where n.name = coalesce(h.destination, '') or coalesce(h.destination, '') = ''
      limit $3
    ) as rest
  ) as behind
from head h
order by h.seq
