-- Makes a worker the importer of an adopted table, or keeps it so. Nothing comes back if another one is.
-- $1 source   $2 worker   $3 for how long
-- Locks: the table's row in importers, unless it is another worker's for a while: whoever only asks waits for nobody's round.
insert into pillarbox.importers as i (source, owner, until)
select $1, $2, now() + $3
where not exists (select from pillarbox.importers where source = $1 and owner <> $2 and until >= now())
on conflict (source) do update set owner = excluded.owner, until = excluded.until
  where i.owner = excluded.owner or i.until < now()
returning 1
