-- Locks rows that read_keyed.sql has read, and returns the versions of those that no other transaction has locked or changed.
-- $1 the versions of the rows   $2 their ids, as in claim_read.sql
select ctid::text as version from pillarbox.outbox_events
where ctid = any($1::text[]::tid[]) and status || '' = 'pending'
  and ((ctid, id) in (select * from unnest($1::text[]::tid[], $2::uuid[]))) is true
for update skip locked
