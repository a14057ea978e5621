-- Makes a worker the one that prunes in its scope, or renews its lease. Returns no row if another worker is.
-- $1 the namespaces of the scope, or null for all   $2 worker   $3 how long
-- Locks: the row of the scope, unless another worker's lease is valid.
insert into pillarbox.pruners as p (scope, owner, leased_until)
select coalesce(md5($1::text[]::text), ''), $2, now() + $3
where not exists (
  select from pillarbox.pruners
  where scope = coalesce(md5($1::text[]::text), '') and owner <> $2 and leased_until >= now()
)
on conflict (scope) do update
  set owner = excluded.owner, leased_until = excluded.leased_until
  where p.owner = excluded.owner or p.leased_until < now()
returning 1
