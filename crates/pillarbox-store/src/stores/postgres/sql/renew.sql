-- Renews the leases of rows that are still held under their claim. Returns the others.
-- $1 worker   $2 ids   $3 claim ids   $4 lease
-- Locks: the rows. A row that a settle is writing is skipped, because its lease ends anyway.
-- Index: the primary key, written as in settle_delivered.sql for the same reason.
with given as materialized (
  select * from unnest($2::uuid[], $3::uuid[]) as g (id, claim_id)
), held as materialized (
  select e.id
  from pillarbox.outbox_events e join given g on e.id = g.id and e.claim_id = g.claim_id
  where e.id = any(array(select id from given)) and e.locked_by = $1 and e.status || '' = 'processing'
  for update of e skip locked
), renewed as (
  update pillarbox.outbox_events e
  set locked_until = now() + $4, updated_at = now()
  from held h
  where e.id = h.id
)
-- By `not in`, which is hashed. The planner expects a few rows, and an anti-join would compare each with every other.
select g.id
from given g
where (g.id, g.claim_id) not in (
  select e.id, e.claim_id from pillarbox.outbox_events e
  where e.id = any(array(select id from given)) and e.claim_id is not null
    and e.locked_by = $1 and e.status || '' = 'processing'
)
