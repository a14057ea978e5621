-- Ends a pause.
-- $1 name
delete from pillarbox.destinations where name = $1
