-- Events whose rows were all lost, so that nothing was written.
-- $1 lost rows   $2 all rows that were to be settled
select coalesce(e.parent_id, e.id) from pillarbox.outbox_events e where e.id = any($1)
except
select coalesce(e.parent_id, e.id) from pillarbox.outbox_events e where e.id = any($2) and e.id <> all($1)
