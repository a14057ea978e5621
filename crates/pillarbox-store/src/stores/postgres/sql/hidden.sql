-- The tables among these of which row-level security hides rows from the current role: no policy lets it see all of them.
-- $1 schema   $2 tables
select c.relname::text
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = $1::text::name and c.relname = any($2::text[]::name[]) and c.relkind in ('r', 'p')
  and row_security_active(c.oid)
  and not exists (
    select from pg_policy p
    where p.polrelid = c.oid and p.polpermissive and p.polcmd = '*' and pg_get_expr(p.polqual, p.polrelid) = 'true'
      and exists (select from unnest(p.polroles) as r where r = 0 or pg_has_role(r, 'usage'))
  )
order by 1
