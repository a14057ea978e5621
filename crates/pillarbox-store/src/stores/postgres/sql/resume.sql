-- Resumes a destination.
-- $1 name
delete from pillarbox.destinations where name = $1
