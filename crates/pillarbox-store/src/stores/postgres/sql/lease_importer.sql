-- Makes a worker the importer of an adopted table, or renews its lease. Returns no row if another worker is the importer.
-- $1 adopted table   $2 worker   $3 how long   $4 the table itself, in quotes
-- Locks: the table's row in importers, unless another worker's lease is valid: asking then waits for no one's round.
insert into pillarbox.importers as i (adopted_table, owner, leased_until, relation)
select $1, $2, now() + $3, $4::text::regclass
where not exists (select from pillarbox.importers where adopted_table = $1 and owner <> $2 and leased_until >= now())
on conflict (adopted_table) do update
  set owner = excluded.owner, leased_until = excluded.leased_until, relation = excluded.relation
  where i.owner = excluded.owner or i.leased_until < now()
returning 1
