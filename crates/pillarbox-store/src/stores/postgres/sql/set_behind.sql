-- Notes that an adopted table has not been told yet what became of these events.
-- $1 events
update pillarbox.adopted set behind = true where event_id = any($1) and not behind
