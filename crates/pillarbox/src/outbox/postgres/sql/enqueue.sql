-- Writes one event without a dedupe key in the caller's transaction.
-- $1 id   $2 payload   $3 body   $4 destination   $5 not before this   $6 … the event's columns
-- Locks: the new row.
insert into pillarbox.outbox_events (/*columns*/)
values (/*parameters*/)
