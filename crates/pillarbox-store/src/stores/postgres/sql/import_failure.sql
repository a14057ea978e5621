-- A row of an adopted table that cannot be imported, and why.
-- $1 adopted table
-- Index: the primary key of import_failures.
select row_id, error from pillarbox.import_failures where adopted_table = $1 order by event_id limit 1
