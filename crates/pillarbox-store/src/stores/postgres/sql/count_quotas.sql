-- Counts quotas of the kind $1, after the name $2. Stops after the quota with which it has counted $3 rows, or after 1,000.
-- Index: the primary key of quotas; outbox_events_by_tenant, outbox_events_by_role.
with recursive counted as (
  select 0 as step, $2::text collate "C" as name, 0::bigint as most, 0::bigint as pending, 0::bigint as total
  union all
  select w.step + 1, next.name, next.max_pending, c.pending, w.total + c.pending
  from counted w
  cross join lateral (
    -- '' is each tenant.
    select q.name, q.max_pending from pillarbox.quotas q where q.kind = $1 and q.name > w.name order by q.name limit 1
  ) as next
  cross join lateral (
    select pillarbox.count_pending($1, next.name, next.max_pending) as pending offset 0
  ) as c
  where w.total < $3 and w.step < 1000
)
select $1 as kind, name, most, pending from counted where step > 0
