-- Finds events that ended without their table being told, by a worker that knows of no adopted table, and notes them.
-- $1 source
-- Locks: what is noted of them; what others hold is skipped.
-- Index: adopted_open; each event then looks up its rows by the primary key and by outbox_events_siblings.
with ended as materialized (
  select a.event_id from pillarbox.adopted a
  where a.source = $1 and not a.ended and not a.behind
    and (select true from pillarbox.outbox_events e
      where e.id = a.event_id and e.status || '' not in ('delivered', 'dead')) is null
    and (select true from pillarbox.outbox_events e
      where e.parent_id = a.event_id and e.status || '' not in ('delivered', 'dead') limit 1) is null
  for update of a skip locked
)
update pillarbox.adopted a set behind = true where a.event_id = any(array(select event_id from ended))
