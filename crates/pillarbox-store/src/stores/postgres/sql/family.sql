-- The rows of an event: its own and its siblings.
-- $1 the event
-- Index: the primary key, outbox_events_siblings.
select id from pillarbox.outbox_events where id = $1
union all
select id from pillarbox.outbox_events where parent_id = $1 and parent_id is not null
