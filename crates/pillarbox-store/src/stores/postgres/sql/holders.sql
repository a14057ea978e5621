-- The last number of the sequence, and then the transactions that hold a lock on the table. Two statements, because their order
-- counts; by the simple protocol.
-- A prepared transaction has no process, and another name than before.
select (select case when is_called then last_value else last_value - 1 end from pillarbox.outbox_seq) as last,
  pg_postmaster_start_time()::text as server, null::text as holder, null::boolean as is_prepared;
select null::bigint as last, null::text as server, coalesce(virtualtransaction, '') || ' ' || coalesce(pid, 0) as holder,
  pid is null as is_prepared
from pg_locks
where locktype = 'relation' and relation = 'pillarbox.outbox_events'::regclass
  and database = (select oid from pg_database where datname = current_database())
  and mode = 'RowExclusiveLock' and coalesce(pid, 0) <> pg_backend_pid()
