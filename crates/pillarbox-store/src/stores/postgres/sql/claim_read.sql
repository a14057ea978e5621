-- Claims rows that read_keyed.sql has read: all of them, or none if one is locked by others or has changed since.
-- $1 worker   $2 claim id   $3 lease   $4 the versions of the rows   $5 their ids
-- Locks: the rows; those locked by others are skipped. Inserts the claim's lease.
-- Index: the ctid of each row. /*delivery*/ is delivery.sql.
--
-- No snapshot is held since the read, so another row may have got the place of a deleted one. Its id differs. With `is true` the
-- list is hashed. Without it the planner would compare each row with the whole list.
with locked as materialized (
  select ctid as version from pillarbox.outbox_events
  where ctid = any($4::text[]::tid[]) and status || '' = 'pending'
    and ((ctid, id) in (select * from unnest($4::text[]::tid[], $5::uuid[]))) is true
  for update skip locked
), all_of_them as materialized (
  select count(*) = cardinality($5::uuid[]) as are_locked from locked
), lease as (
  insert into pillarbox.leases (claim_id, first_row, worker, until, rows)
  select $2, ($5::uuid[])[1], $1, now() + $3, $5::uuid[] from all_of_them where are_locked
)
update pillarbox.outbox_events e
set status = 'processing', attempts = greatest(e.attempts, 0) + 1, updated_at = now(),
    locked_by = $1, locked_until = now() + $3, claim_id = $2, own_lease = false
from locked c
where e.ctid = c.version and (select are_locked from all_of_them)
returning /*delivery*/ e.id
