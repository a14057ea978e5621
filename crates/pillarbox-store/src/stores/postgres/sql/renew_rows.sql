-- Renews the leases that rows have of their own. Returns the rows that are no longer held under their claim.
-- $1 worker   $2 rows   $3 their claims   $4 lease
-- Locks: rows with a lease of their own. A row that a settlement is writing is skipped, because its lease ends anyway.
-- Index: the primary keys; rows as in settle_delivered.sql for the same reason.
--
-- Runs after renew.sql, and sees what others changed before it got its locks. A row whose claim has no lease any more gets
-- one of its own.
with given as materialized (
  select * from unnest($2::uuid[], $3::uuid[]) as g (id, claim_id)
), own as materialized (
  select e.id
  from pillarbox.outbox_events e join given g on e.id = g.id and e.claim_id = g.claim_id
  where e.id = any(array(select id from given)) and e.locked_by = $1 and e.status || '' = 'processing'
    and (e.own_lease or e.claim_id not in (
      select claim_id from pillarbox.leases where claim_id = any(array(select distinct claim_id from given))))
  for update of e skip locked
), renewed as (
  update pillarbox.outbox_events e
  set own_lease = true, locked_until = now() + $4, updated_at = now()
  from own o
  where e.id = o.id
)
-- By `not in`, which is hashed. The planner expects a few rows, and an anti-join would compare each with every other.
select g.id
from given g
where (g.id, g.claim_id) not in (
  select e.id, e.claim_id from pillarbox.outbox_events e
  where e.id = any(array(select id from given)) and e.claim_id is not null
    and e.locked_by = $1 and e.status || '' = 'processing'
)
