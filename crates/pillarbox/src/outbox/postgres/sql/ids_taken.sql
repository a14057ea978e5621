-- Which of these ids are there already?
-- $1 ids
-- Index: the primary key.
select e.seq as place, e.id::text as id
from pillarbox.outbox_events e
where e.id = any ($1::uuid[])
