-- The last number of the sequence, and then the transactions that hold a lock on the table. Two statements, because their order
-- counts; by the simple protocol. A transaction gets another name when it is prepared, and belongs to no session then.
select (select case when is_called then last_value else last_value - 1 end from pillarbox.outbox_seq) as last,
  null::text as holder;
select null::bigint as last, coalesce(pid::text, 'prepared') || ' ' || coalesce(virtualtransaction, '') as holder
from pg_locks
where locktype = 'relation' and relation = 'pillarbox.outbox_events'::regclass
  and database = (select oid from pg_database where datname = current_database())
  and mode = 'RowExclusiveLock' and coalesce(pid, 0) <> pg_backend_pid()
