-- Makes a worker the importer of an adopted table, or renews its lease. Returns no row if another worker is the importer.
-- $1 adopted table   $2 worker   $3 how long
-- Locks: the table's row in importers, unless another worker's lease is valid: asking then waits for no one's round.
insert into pillarbox.importers as i (adopted_table, owner, leased_until)
select $1, $2, now() + $3
where not exists (select from pillarbox.importers where adopted_table = $1 and owner <> $2 and leased_until >= now())
on conflict (adopted_table) do update set owner = excluded.owner, leased_until = excluded.leased_until
  where i.owner = excluded.owner or i.leased_until < now()
returning 1
