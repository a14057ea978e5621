-- Counts tenants with unfinished rows, after the tenant $1, where each has a quota: its own, or $3. Stops after the tenant with
-- which it has counted $2 rows, or after 1,000 tenants.
-- Index: outbox_events_by_tenant, stepped over from tenant to tenant; the primary key of quotas.
with recursive counted as (
  select 0 as step, $1::text collate "C" as name, 0::bigint as most, 0::bigint as pending, 0::bigint as total
  union all
  select w.step + 1, next.name, next.most, c.pending, w.total + c.pending
  from counted w
  cross join lateral (
    select t.tenant_id::text collate "C" as name, coalesce((
      select q.max_pending from pillarbox.quotas q where q.kind = 'tenant' and q.name = t.tenant_id::text
    ), $3) as most
    from (
      (select e.tenant_id from pillarbox.outbox_events e
       where e.open < 2 and e.tenant_id is not null and e.tenant_id > nullif(w.name, '')::uuid
       order by e.tenant_id limit 1)
      union all
      (select e.tenant_id from pillarbox.outbox_events e
       where w.name = '' and e.open < 2 and e.tenant_id is not null
       order by e.tenant_id limit 1)
      limit 1
    ) as t
  ) as next
  cross join lateral (
    select pillarbox.count_pending('tenant'::text, next.name, next.most) as pending offset 0
  ) as c
  where w.total < $2 and w.step < 1000
)
select 'tenant' as kind, name, most, pending from counted where step > 0
