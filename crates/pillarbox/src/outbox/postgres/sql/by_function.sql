-- Enqueues events by the SQL function, in the caller's transaction and in the caller's order. Returns the id of each, after a
-- `+` if it was written and a `=` if it is that of the event that came first.
-- $1 events   $2 serialised
-- Locks: as pillarbox.enqueue_many.
select ord as place, case when is_new then '+' else '=' end || id::text as id
from pillarbox.enqueue_many($1::text::jsonb, $2::int <> 0)
order by ord
