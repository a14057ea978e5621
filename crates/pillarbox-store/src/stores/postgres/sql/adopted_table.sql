-- One adopted table: rows in progress, pending write-backs, rejected write-backs, importer.
-- $1 adopted table   $2 how many are counted at most
-- Index: adopted_open, adopted_pending.
select
  (select count(*) from (
    select from pillarbox.adopted where adopted_table = $1 and not ended and not rejected limit $2) as open),
  (select count(*) from (
    select from pillarbox.adopted where adopted_table = $1 and write_back_pending and not rejected limit $2) as late),
  (select count(*) from (
    select from pillarbox.adopted where adopted_table = $1 and write_back_pending and rejected limit $2) as rejected),
  (select owner from pillarbox.importers where adopted_table = $1 and leased_until > now())
