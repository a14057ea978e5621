-- Resumes a destination. Returns whether the destination itself had asked for no more events.
-- $1 name
delete from pillarbox.destinations where name = $1 returning disabled
