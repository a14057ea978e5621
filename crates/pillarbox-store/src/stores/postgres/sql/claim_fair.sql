-- Claims due rows without a lane for one worker, with a fair share for every tenant.
-- $1 worker   $2 claim id   $3 lease   $4 destinations ('' for none yet)   $5 namespaces   $6 how many of each
-- $7 the default limit of attempts   $8 bytes at most, or one row   $9 the tenant to begin after, of each   $10 a random number
-- Locks: the chosen rows only; rows locked by others are skipped. Inserts the claim's lease.
-- Index: outbox_events_fair, which exists only where `fair_by` is set; outbox_events_waiting; then the primary key.
--
-- Rows that are not due are never read, however many tenants have scheduled rows. Fresh rows are due: the claim steps from
-- tenant to tenant and begins after the last one that got a row, so that all of them get their turn even if a claim has no
-- room for all. Of rows that have waited it reads the first due ones, and draws lots among their tenants. They get half
-- of the room, and what fresh rows leave. Rows without a tenant count as one tenant.
with recursive share as materialized (
  select * from unnest($4::text[], $5::text[], $6::bigint[], $9::uuid[]) with ordinality
    as s (destination, namespace, most, after, turn)
), tenants as (
  select s.turn, s.destination, s.namespace, s.most, s.after, s.after as tenant, false as around, 0::bigint as step,
    false as real
  from share s
  union all
  select t.turn, t.destination, t.namespace, t.most, t.after, next.tenant, next.around, t.step + 1, true
  from tenants t
  cross join lateral (
    (select coalesce(tenant_id, '00000000-0000-0000-0000-000000000000') as tenant, t.around as around
     from pillarbox.outbox_events
     where open = 0 and lane is null and status = 'pending'
       and coalesce(destination, '') = t.destination and namespace = t.namespace
       and coalesce(tenant_id, '00000000-0000-0000-0000-000000000000') > t.tenant
       and next_attempt_at <= now()
     order by coalesce(destination, ''), namespace, coalesce(tenant_id, '00000000-0000-0000-0000-000000000000'), seq
     limit 1)
    union all
    -- After the last tenant, continue with the first, which may have the nil id.
    (select coalesce(tenant_id, '00000000-0000-0000-0000-000000000000'), true
     from pillarbox.outbox_events
     where not t.around and open = 0 and lane is null and status = 'pending'
       and coalesce(destination, '') = t.destination and namespace = t.namespace
       and next_attempt_at <= now()
     order by coalesce(destination, ''), namespace, coalesce(tenant_id, '00000000-0000-0000-0000-000000000000'), seq
     limit 1)
    limit 1
  ) as next
  where t.step < least(t.most, 2000) and not (next.around and next.tenant > t.after)
), turns as materialized (
  select *, ceil(2.0 * most / count(*) over (partition by turn))::bigint as each from tenants where real
), fresh as materialized (
  select *, row_number() over (partition by turn order by place, step) as rank
  from (
    select t.turn, t.step, r.*, row_number() over (partition by t.turn, t.step order by r.seq) as place
    from turns t cross join lateral (
      select id, seq, pillarbox.size(payload, body) as size
      from pillarbox.outbox_events
      where open = 0 and lane is null and status = 'pending'
        and coalesce(destination, '') = t.destination and namespace = t.namespace
        -- As a range, so that no index without the tenant has the same order.
        and coalesce(tenant_id, '00000000-0000-0000-0000-000000000000') >= t.tenant
        and coalesce(tenant_id, '00000000-0000-0000-0000-000000000000') <= t.tenant
        and next_attempt_at <= now() and attempts < coalesce(max_attempts, $7)
      order by coalesce(destination, ''), namespace, coalesce(tenant_id, '00000000-0000-0000-0000-000000000000'), seq
      limit t.each
    ) as r
  ) as placed
), waited as materialized (
  select *, row_number() over (partition by turn order by place, uuid_hash_extended(tenant, $10), at, seq) as rank
  from (
    select s.turn, r.*, row_number() over (partition by s.turn, r.tenant order by r.at, r.seq) as place
    from share s cross join lateral (
      select id, seq, coalesce(tenant_id, '00000000-0000-0000-0000-000000000000') as tenant, next_attempt_at as at,
        pillarbox.size(payload, body) as size
      from pillarbox.outbox_events
      where open = 1 and lane is null and status = 'pending'
        and coalesce(destination, '') = s.destination and namespace = s.namespace
        and next_attempt_at <= now() and attempts < coalesce(max_attempts, $7)
      order by coalesce(destination, ''), namespace, next_attempt_at, seq
      limit 2 * s.most + 1000
    ) as r
  ) as placed
), wanted as materialized (
  select * from (
    select turn, id, size, is_fresh, most, row_number() over (partition by turn order by class, rank) as rank
    from (
      select f.turn, f.id, f.size, true as is_fresh, 2 as class, f.rank, s.most
      from fresh f join share s on s.turn = f.turn
      union all
      -- Half of the room, rounded up or down by chance: with room for one row neither kind starves.
      select w.turn, w.id, w.size, false, case when w.rank <= (s.most + ($10 & 1)) / 2 then 1 else 3 end, w.rank, s.most
      from waited w join share s on s.turn = w.turn
    ) as candidate
  ) as ranked
  where rank <= most
), locked as materialized (
  select e.id from pillarbox.outbox_events e
  where e.id = any(array(select id from wanted)) and e.status || '' = 'pending' and e.next_attempt_at <= now()
  for update skip locked
), measured as (
  select w.id, w.size, w.is_fresh, sum(w.size) over (order by w.turn, w.rank rows unbounded preceding) as total
  from (select *, id in (select id from locked) as is_locked from wanted) as w
  where w.is_locked
), chosen as materialized (
  select id, is_fresh from measured where total <= $8 or total = size
), lease as (
  insert into pillarbox.leases (claim_id, first_row, worker, until, rows)
  select $2, (array_agg(id))[1], $1, now() + $3, array_agg(id) from chosen having count(*) > 0
)
update pillarbox.outbox_events e
set status = 'processing', attempts = greatest(e.attempts, 0) + 1, updated_at = now(),
    locked_by = $1, locked_until = now() + $3, claim_id = $2, own_lease = false
from chosen c
where e.id = c.id
returning /*delivery*/ e.id, c.is_fresh
