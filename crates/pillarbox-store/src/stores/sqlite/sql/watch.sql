-- The number of rows that were ever inserted.
-- Locks: none in WAL mode; otherwise the file, shared, for the read.
select coalesce(max(seq), 0) from sqlite_sequence where name = 'outbox_events'
