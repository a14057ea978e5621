-- The statements that give a schema and everything in it to another role, the schema first. A sequence of a column goes with
-- its table.
-- $1 schema   $2 role
select format('alter %s owner to %I', object, $2::text)
from (
  select 1 as place, format('schema %I', nspname) as object from pg_namespace where nspname = $1::text::name
  union all
  select 2, format('table %s', c.oid::regclass)
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
  where n.nspname = $1::text::name and c.relkind in ('r', 'p')
  union all
  select 3, format('routine %s', p.oid::regprocedure)
  from pg_proc p join pg_namespace n on n.oid = p.pronamespace
  where n.nspname = $1::text::name and p.prokind in ('f', 'p')
  union all
  select 4, format('type %s', t.oid::regtype)
  from pg_type t join pg_namespace n on n.oid = t.typnamespace join pg_class c on c.oid = t.typrelid
  where n.nspname = $1::text::name and c.relkind = 'c'
) as objects
order by place
