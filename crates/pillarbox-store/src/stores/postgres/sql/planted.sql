-- What is in a schema that has no outbox yet: some of it, as `function f(integer)`. A trigger belongs to its table. There is an
-- outbox if its tables belong to the owner of the schema or to a superuser.
-- $1 schema
with wanted as (
  select oid as schema, nspowner from pg_namespace where nspname = $1::text::name
), outbox as (
  select from wanted join pg_class c on c.relnamespace = schema and c.relkind in ('r', 'p')
    join pg_roles r on r.oid = c.relowner
  where c.relname in ('migrations', 'outbox_events') and (r.oid = nspowner or r.rolsuper)
  having count(*) = 2
)
select object from (
  select format('%s %s', case when relkind in ('r', 'p') then 'table' else 'relation' end, c.oid::regclass) as object
  from wanted join pg_class c on c.relnamespace = schema
  where c.relkind in ('r', 'p', 'v', 'm', 'f', 'S')
  union all
  select format('function %s', p.oid::regprocedure) from wanted join pg_proc p on p.pronamespace = schema
  union all
  -- Neither the type of a table's rows nor one that belongs to another type.
  select format('type %s', t.oid::regtype) from wanted join pg_type t on t.typnamespace = schema
  where t.typtype not in ('m') and t.typelem = 0
    and (t.typrelid = 0 or exists (select from pg_class c where c.oid = t.typrelid and c.relkind = 'c'))
  union all
  select format('operator %s', o.oid::regoperator) from wanted join pg_operator o on o.oprnamespace = schema
) as objects
where not exists (select from outbox)
order by object
limit 5
