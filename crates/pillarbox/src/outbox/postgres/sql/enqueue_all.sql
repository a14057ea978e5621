-- Writes many events without dedupe keys in the caller's transaction, in the caller's order.
-- $1 ids   $2 payloads   $3 bodies   $4 destinations   $5 not before these   $6 … the event's columns
-- An array without elements means null for every event. `bind.rs` says which parameters are arrays.
-- Locks: the new rows. PostgreSQL knows that a function's ordinals ascend, so nothing is sorted.
insert into pillarbox.outbox_events (/*columns*/)
select /*values*/
from unnest(/*arrays*/) with ordinality as given (/*names*/, ord)
order by ord
