-- Lets these rows be claimed with the others of their keys. They are behind a row that was tried before, and claims in the order
-- of insertion would read them again and again.
-- $1 the versions of the rows   $2 their ids, as in claim_read.sql
-- Locks: the rows; those locked by others or changed since are skipped.
update pillarbox.outbox_events e set by_key = true, updated_at = now()
where e.ctid = any(array(
  select ctid from pillarbox.outbox_events
  where ctid = any($1::text[]::tid[]) and status || '' = 'pending'
    and ((ctid, id) in (select * from unnest($1::text[]::tid[], $2::uuid[]))) is true
  for update skip locked
))
