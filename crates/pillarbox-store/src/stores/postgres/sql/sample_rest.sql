-- Counts what a sample has beside pending and dead rows: one row per fact. The name is a destination ('' for none yet)
-- or a kind of saga.
-- $1 up to how many rows are read of each kind   $2 after how many seconds a row in processing is stale
-- Index: the leases, then the primary key row by row; outbox_events_own_leases; outbox_events_ended; outbox_events_tried, then
-- the primary key and outbox_events_keyed.
with recursive tried as (
  -- The first row of each key that was tried, as in blocked.sql.
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
), dead as materialized (
  select e.seq, e.namespace, e.destination, e.lane, e.ordering_key
  from tried t cross join lateral (select * from pillarbox.outbox_events where id = t.id limit 1) as e
  where e.status = 'dead'
), held as materialized (
  (select e.destination, e.updated_at
   from pillarbox.leases l cross join lateral unnest(l.rows) as r (id) cross join lateral (
     select destination, updated_at from pillarbox.outbox_events
     where id = r.id and claim_id = l.claim_id and status || '' = 'processing' and not own_lease
     limit 1
   ) as e
   limit $1)
  union all
  (select destination, updated_at from pillarbox.outbox_events where own_until is not null limit $1)
)
select 'processing' as what, coalesce(destination, '') as name, count(*)::float8 as value from held group by 2
union all
select 'stale', '', count(*)::float8 from held where updated_at < now() - make_interval(secs => $2)
union all
select 'oldest', '', coalesce(extract(epoch from now() - min(updated_at)), 0)::float8 from held where isfinite(updated_at)
union all
select 'unknown', coalesce(u.destination, ''), count(*)::float8
from (select destination from pillarbox.outbox_events where open = 3 limit $1) as u group by 2
union all
select 'blocked', '', count(*)::float8 from dead d
where not exists (
  select from pillarbox.outbox_events o
  where o.open < 3 and o.lane is not null
    and coalesce(o.destination, '') = coalesce(d.destination, '') and o.namespace = d.namespace
    and o.lane = d.lane and o.ordering_key = d.ordering_key and o.seq < d.seq)
and not exists (
  select from pillarbox.outbox_events o
  where o.open < 3 and o.lane is not null
    and coalesce(o.destination, '') = '' and o.namespace = d.namespace
    and o.lane = d.lane and o.ordering_key = d.ordering_key and o.seq < d.seq)
union all
select 'alive', '', count(*)::float8 from pillarbox.workers where alive_until >= now()
union all
select case when disabled then 'disabled' else 'paused' end, name, 1::float8 from pillarbox.destinations
union all
select status, name, sagas::float8 from pillarbox.open_sagas($1::bigint)
