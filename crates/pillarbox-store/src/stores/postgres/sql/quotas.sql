-- Lists quotas with what counts against them, roles first. $1 how many
-- Index: the primary key of quotas; outbox_events_by_tenant, outbox_events_by_role.
select q.kind, q.name, q.max_pending, case when q.name <> '' then pillarbox.count_pending(q.kind, q.name, q.max_pending) end
    as pending,
  exists (
    select from pillarbox.over_quota o
    where o.kind = q.kind and o.name = q.name and o.counted_at > clock_timestamp() - interval '10 minutes'
  ) as is_over, q.is_own
from (
  select kind, name, max_pending, true as is_own from pillarbox.quotas
  union all
  -- Those that have no quota of their own.
  select o.kind, o.name, o.max_pending, false from pillarbox.over_quota o
  where o.kind = 'tenant' and o.counted_at > clock_timestamp() - interval '10 minutes'
    and not exists (select from pillarbox.quotas own where own.kind = 'tenant' and own.name = o.name)
    and exists (select from pillarbox.quotas each where each.kind = 'tenant' and each.name = '')
  order by kind, is_own desc, name
  limit $1
) as q
order by q.kind, q.is_own desc, q.name
