-- Locks rows that read_keyed.sql has read, and returns the versions of those that no other transaction has locked or changed.
-- $1 the versions of the rows
select ctid::text as version from pillarbox.outbox_events
where ctid = any($1::text[]::tid[])
for update skip locked
