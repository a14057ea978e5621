-- Postpones rows that were due, and were neither imported nor failed again: others hold them, or they no longer wait.
-- $1 adopted table   $2 events
-- Index: the primary key of import_failures.
update pillarbox.import_failures set next_attempt_at = now() + interval '1 minute'
where adopted_table = $1 and event_id = any($2) and next_attempt_at <= now()
