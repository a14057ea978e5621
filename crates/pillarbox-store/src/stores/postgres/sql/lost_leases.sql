-- Gives leases of their own, which have expired, to rows in processing whose claim has no lease: it was deleted by hand.
-- $1, $2 the backlog to begin after   $3 namespaces, or null for all
-- Returns the last backlog that it looked at; none after the last of all.
-- Locks: these rows; those locked by others are skipped.
-- Index: outbox_events_fresh, outbox_events_waiting, outbox_events_keyed; the first rows of 200 backlogs. A row that is never
-- settled is among the first sooner or later.
with recursive stepped as (
  select $1::text collate "C" as destination, $2::text collate "C" as namespace, 0 as step
  union all
  select next.destination, next.namespace, s.step + 1
  from stepped s
  cross join lateral (
    select destination, namespace from (
      (select coalesce(destination, '') as destination, namespace from pillarbox.outbox_events
       where open = 0 and lane is null and (coalesce(destination, ''), namespace) > (s.destination, s.namespace)
       order by coalesce(destination, ''), namespace, seq limit 1)
      union all
      (select coalesce(destination, ''), namespace from pillarbox.outbox_events
       where open = 1 and lane is null and (coalesce(destination, ''), namespace) > (s.destination, s.namespace)
       order by coalesce(destination, ''), namespace, next_attempt_at, seq limit 1)
      union all
      (select coalesce(destination, ''), namespace from pillarbox.outbox_events
       where open < 3 and lane is not null and (coalesce(destination, ''), namespace) > (s.destination, s.namespace)
       order by coalesce(destination, ''), namespace, lane, ordering_key, seq limit 1)
    ) as one
    order by destination, namespace limit 1
  ) as next
  where s.step < 200
), lost as materialized (
  select f.id from stepped s cross join lateral (
    (select id, status, claim_id, own_until, locked_until from pillarbox.outbox_events
     where open = 0 and lane is null and coalesce(destination, '') = s.destination and namespace = s.namespace
     order by coalesce(destination, ''), namespace, seq limit 100)
    union all
    (select id, status, claim_id, own_until, locked_until from pillarbox.outbox_events
     where open = 1 and lane is null and coalesce(destination, '') = s.destination and namespace = s.namespace
     order by coalesce(destination, ''), namespace, next_attempt_at, seq limit 100)
    union all
    (select id, status, claim_id, own_until, locked_until from pillarbox.outbox_events
     where open < 3 and lane is not null and coalesce(destination, '') = s.destination and namespace = s.namespace
     order by coalesce(destination, ''), namespace, lane, ordering_key, seq limit 100)
  ) as f
  where s.step > 0 and ($3::text[] is null or s.namespace = any($3))
    and f.status = 'processing' and f.own_until is null and coalesce(f.locked_until, '-infinity') < now()
    and not exists (select from pillarbox.leases l where l.claim_id = f.claim_id)
), locked as materialized (
  select e.id from pillarbox.outbox_events e
  where e.id = any(array(select id from lost)) and e.status || '' = 'processing' and not e.own_lease
  for update skip locked
), freed as (
  update pillarbox.outbox_events e set own_lease = true
  where e.id = any(array(select id from locked))
  returning e.id
)
select destination, namespace, (select count(*) from freed) as freed
from stepped
order by step desc limit 1
