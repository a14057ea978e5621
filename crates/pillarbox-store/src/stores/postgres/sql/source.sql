-- What people want to know of one adopted table: rows on their way, rows it was not told of, who imports.
-- $1 source   $2 how many are counted at the most
-- Index: adopted_open, adopted_behind.
select
  (select count(*) from (select from pillarbox.adopted where source = $1 and not ended limit $2) as open),
  (select count(*) from (select from pillarbox.adopted where source = $1 and behind limit $2) as late),
  (select owner from pillarbox.importers where source = $1 and until > now())
