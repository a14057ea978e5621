-- Notes that an adopted table has not been told yet what became of these events.
-- $1 source   $2 events
-- Index: adopted_event; `source || ''` as adopt/statements.rs says.
update pillarbox.adopted set behind = true where source || '' = $1 and event_id = any($2) and not behind
