-- Makes a worker the importer of an adopted table, or renews its lease. Returns no row if another worker is the importer.
-- $1 adopted table   $2 worker   $3 how long   $4 the schema of the table itself, if it is configured   $5 its name
-- Locks: the table's row in importers, unless another worker's lease is valid: asking then waits for no one's round.
insert into pillarbox.importers as i (adopted_table, owner, leased_until, relation)
select $1, $2, now() + $3, case
    when $4::text is null then quote_ident($5)::regclass
    -- Not by its name: that would need `usage` on the schema, and the check of permissions comes after.
    else (select c.oid::regclass from pg_class c join pg_namespace n on n.oid = c.relnamespace
      where n.nspname = $4::text::name and c.relname = $5::text::name) end
where not exists (select from pillarbox.importers where adopted_table = $1 and owner <> $2 and leased_until >= now())
on conflict (adopted_table) do update
  set owner = excluded.owner, leased_until = excluded.leased_until, relation = excluded.relation
  where i.owner = excluded.owner or i.leased_until < now()
returning 1
