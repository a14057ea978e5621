-- The events of which nothing was written: all of their rows that were to be settled were lost.
-- $1 rows that were lost   $2 all rows that were to be settled
select coalesce(e.parent_id, e.id) from pillarbox.outbox_events e where e.id = any($1)
except
select coalesce(e.parent_id, e.id) from pillarbox.outbox_events e where e.id = any($2) and e.id <> all($1)
