-- Records how events ended that have no rows left: dead, or delivered because no route matches.
-- $1 events   $2 dead?
-- Index: the primary keys of adopted and outbox_events, outbox_events_siblings.
update pillarbox.adopted a set ended = $2
where a.event_id = any($1) and a.ended <> $2
  and (select true from pillarbox.outbox_events e where e.id = a.event_id) is null
  and (select true from pillarbox.outbox_events e where e.parent_id = a.event_id limit 1) is null
