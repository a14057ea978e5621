-- Claims due rows without a lane for one worker, with a fair share for every tenant.
-- $1 worker   $2 claim id   $3 lease   $4 destinations ('' for none yet)   $5 namespaces   $6 how many of each
-- $7 the default limit of attempts   $8 bytes at most, or one row
-- Locks: the chosen rows only; rows locked by others are skipped.
-- Index: outbox_events_fair, which exists only where `fair_by` is set; then the primary key.
--
-- Steps from tenant to tenant. It begins at a random one, the claim's id, so that all tenants get their share even if a
-- claim has no room for all of them. Rows without a tenant count as one tenant.
with recursive share as materialized (
  select *, $2::uuid as start from unnest($4::text[], $5::text[], $6::bigint[]) with ordinality
    as s (destination, namespace, most, turn)
), tenants as (
  select s.turn, s.destination, s.namespace, s.most, s.start as tenant, false as around, 0::bigint as step,
    false as real
  from share s
  union all
  select t.turn, t.destination, t.namespace, t.most, next.tenant, next.around, t.step + 1, next.real
  from tenants t
  cross join lateral (
    (select coalesce(tenant_id, '00000000-0000-0000-0000-000000000000') as tenant, t.around as around, true as real
     from pillarbox.outbox_events
     where status = 'pending' and lane is null
       and coalesce(destination, '') = t.destination and namespace = t.namespace
       and coalesce(tenant_id, '00000000-0000-0000-0000-000000000000') > t.tenant
     order by coalesce(destination, ''), namespace, coalesce(tenant_id, '00000000-0000-0000-0000-000000000000'),
       next_attempt_at, seq
     limit 1)
    union all
    -- After the last tenant, continue with the first, which may have the nil id.
    (select coalesce(tenant_id, '00000000-0000-0000-0000-000000000000'), true, true
     from pillarbox.outbox_events
     where not t.around and status = 'pending' and lane is null
       and coalesce(destination, '') = t.destination and namespace = t.namespace
     order by coalesce(destination, ''), namespace, coalesce(tenant_id, '00000000-0000-0000-0000-000000000000'),
       next_attempt_at, seq
     limit 1)
    limit 1
  ) as next
  where t.step < least(t.most, 2000) and not (next.around and next.tenant > $2)
), turns as materialized (
  select *, ceil(2.0 * most / count(*) over (partition by turn))::bigint as each from tenants where real
), found as materialized (
  select t.turn, t.step, r.*, row_number() over (partition by t.turn, t.step order by r.at, r.seq) as place
  from turns t cross join lateral (
    select id, seq, next_attempt_at as at, pillarbox.size(payload, body) as size
    from pillarbox.outbox_events
    where status = 'pending' and lane is null
      and coalesce(destination, '') = t.destination and namespace = t.namespace
      and coalesce(tenant_id, '00000000-0000-0000-0000-000000000000') = t.tenant
      and next_attempt_at <= now() and attempts < coalesce(max_attempts, $7)
    order by coalesce(destination, ''), namespace, coalesce(tenant_id, '00000000-0000-0000-0000-000000000000'),
      next_attempt_at, seq
    limit t.each
  ) as r
), wanted as materialized (
  select f.* from (
    select *, row_number() over (partition by turn order by place, at, seq) as rank from found
  ) as f join share s on s.turn = f.turn
  where f.rank <= s.most
), locked as materialized (
  select e.id from pillarbox.outbox_events e
  where e.id = any(array(select id from wanted)) and e.status || '' = 'pending' and e.next_attempt_at <= now()
  for update skip locked
), chosen as (
  select w.id, w.size, sum(w.size) over (order by w.turn, w.rank rows unbounded preceding) as total
  from (select *, id in (select id from locked) as is_locked from wanted) as w
  where w.is_locked
)
update pillarbox.outbox_events e
set status = 'processing', attempts = greatest(e.attempts, 0) + 1, updated_at = now(),
    locked_by = $1, locked_until = now() + $3, claim_id = $2
from chosen c
where e.id = c.id and (c.total <= $8 or c.total = c.size)
returning /*delivery*/ e.id
