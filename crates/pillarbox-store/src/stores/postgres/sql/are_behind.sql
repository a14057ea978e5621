-- Events of which an adopted table has not been told yet.
-- $1 source   $2 how many
-- Locks: what is noted of them; what others hold is skipped.
-- Index: adopted_behind.
select event_id from pillarbox.adopted where source = $1 and behind limit $2 for update skip locked
