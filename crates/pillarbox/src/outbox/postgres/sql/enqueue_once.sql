-- Writes one event with a dedupe key in the caller's transaction. No row comes back if the key was there before.
-- $1 … as in enqueue.sql, then the dedupe key
-- Locks: the new row, and its dedupe key until the transaction ends.
insert into pillarbox.outbox_events (/*columns*/, dedupe_key)
values (/*parameters*/, /*dedupe_key*/)
on conflict (namespace, topic, dedupe_key) where dedupe_key is not null do nothing
returning 1::bigint as place, id::text as id
