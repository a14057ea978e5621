-- Makes a worker the importer of an adopted table, or keeps it so. Nothing comes back if another one is.
-- $1 source   $2 worker   $3 for how long
-- Locks: the table's row in importers.
insert into pillarbox.importers as i (source, owner, until) values ($1, $2, now() + $3)
on conflict (source) do update set owner = excluded.owner, until = excluded.until
  where i.owner = excluded.owner or i.until < now()
returning 1
