-- Renews the leases of claims.
-- $1 worker   $2 rows   $3 their claims   $4 lease
-- Locks: the leases, and rows that are not renewed with their claim. Rows that a settlement is writing are skipped.
-- Index: the primary keys; rows as in settle_delivered.sql for the same reason.
--
-- A row that is not given leaves the lease of its claim. It gets a lease of its own, with the old end.
with given as materialized (
  select * from unnest($2::uuid[], $3::uuid[]) as g (id, claim_id)
), lease as materialized (
  select claim_id, first_row, until, rows from pillarbox.leases
  where claim_id = any(array(select distinct claim_id from given)) and worker = $1
  order by claim_id, first_row
  for update
), member as materialized (
  select *, (id, claim_id) in (select id, claim_id from given) as is_given
  from (select claim_id, first_row, until, unnest(rows) as id from lease) as m
), wanted as materialized (
  select distinct claim_id, first_row from member where is_given
), left_out as materialized (
  select id, claim_id, until from member
  where not is_given and (claim_id, first_row) in (select claim_id, first_row from wanted)
), locked as materialized (
  select e.id, o.until
  from pillarbox.outbox_events e join left_out o on e.id = o.id and e.claim_id = o.claim_id
  where e.id = any(array(select id from left_out)) and e.status || '' = 'processing' and not e.own_lease
  for update of e skip locked
), freed as (
  update pillarbox.outbox_events e
  set own_lease = true, locked_until = l.until
  from locked l
  where e.id = l.id
)
update pillarbox.leases l
set until = now() + $4, updated_at = now()
from wanted w
where l.claim_id = w.claim_id and l.first_row = w.first_row
