-- Counts who was over its quota, the longest ago first. Stops after the one with which it has counted $1 rows, or after 200.
-- A quota that is gone has no `most`.
-- Index: over_quota has few rows; outbox_events_by_tenant, outbox_events_by_role.
with recursive asked as materialized (
  select o.kind, o.name, coalesce(own.max_pending, each.max_pending) as most,
    row_number() over (order by o.counted_at, o.kind, o.name) as place
  from pillarbox.over_quota o
  left join pillarbox.quotas own on own.kind = o.kind and own.name = o.name
  left join pillarbox.quotas each on each.kind = 'tenant' and each.name = '' and o.kind = 'tenant'
  where o.counted_at < clock_timestamp() - interval '4 seconds'
  order by o.counted_at, o.kind, o.name
  limit 200
), counted as (
  select 0::bigint as place, null::text collate "C" as kind, null::text collate "C" as name, 0::bigint as most,
    0::bigint as pending, 0::bigint as total
  union all
  select a.place, a.kind, a.name, a.most, c.pending, w.total + c.pending
  from counted w
  join asked a on a.place = w.place + 1
  cross join lateral (
    select case when a.most is null then 0 else pillarbox.count_pending(a.kind, a.name, a.most) end as pending
    offset 0
  ) as c
  where w.total < $1
)
select kind, name, most, pending from counted where place > 0
