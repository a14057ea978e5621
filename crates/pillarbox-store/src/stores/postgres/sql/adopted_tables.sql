-- Every adopted table that a worker imports or has imported.
select adopted_table from pillarbox.importers
