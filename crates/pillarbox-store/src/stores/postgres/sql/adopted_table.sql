-- One adopted table: rows in progress, pending write-backs, rejected write-backs, rows not imported, importer.
-- $1 adopted table   $2 how many are counted at most
-- Index: adopted_open, adopted_pending, the primary key of import_failures.
select
  (select count(*) from (
    select from pillarbox.adopted where adopted_table = $1 and not ended and not rejected limit $2) as open),
  (select count(*) from (
    select from pillarbox.adopted where adopted_table = $1 and write_back_pending and not rejected limit $2) as late),
  (select count(*) from (
    select from pillarbox.adopted where adopted_table = $1 and write_back_pending and rejected limit $2) as rejected),
  (select count(*) from (select from pillarbox.import_failures where adopted_table = $1 limit $2) as failed),
  (select owner from pillarbox.importers where adopted_table = $1 and leased_until > now())
