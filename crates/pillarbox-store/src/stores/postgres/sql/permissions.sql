-- What a role may do in an outbox, also by its memberships, each as `select on outbox_events`. If it is bound by nothing, that
-- is all that is listed.
-- $1 role   $2 schema
with asked as (
  select r.oid as role, r.rolsuper, r.rolbypassrls, n.oid as schema, n.nspowner
  from pg_roles r, pg_namespace n
  where r.rolname = $1::text::name and n.nspname = $2::text::name
), unbound as (
  select 'everything: it is a superuser' as permission from asked where rolsuper
  union all
  select format('everything: it is the owner of the outbox, or a member of it (%s)', pg_get_userbyid(nspowner))
  from asked where not rolsuper and pg_has_role(role, nspowner, 'member')
  union all
  select 'the rows of others: it bypasses row-level security' from asked where not rolsuper and rolbypassrls
), bound as (
  select format('%s on the schema', privilege) as permission
  from asked, unnest('{usage, create}'::text[]) as privilege
  where has_schema_privilege(role, schema, privilege)
  union all
  select format('%s on %s', privilege, relname)
  from asked join pg_class on relnamespace = schema and relkind in ('r', 'p', 'v', 'm'),
    unnest('{select, insert, update, delete, truncate, references, trigger}'::text[]) as privilege
  where has_table_privilege(role, pg_class.oid, privilege)
  union all
  select format('%s (%s) on %s', privilege, attname, relname)
  from asked join pg_class on relnamespace = schema and relkind in ('r', 'p', 'v', 'm')
    join pg_attribute on attrelid = pg_class.oid and attnum > 0 and not attisdropped,
    unnest('{select, insert, update, references}'::text[]) as privilege
  where has_column_privilege(role, attrelid, attnum, privilege) and not has_table_privilege(role, attrelid, privilege)
  union all
  select format('%s on %s', privilege, relname)
  from asked join pg_class on relnamespace = schema, unnest('{usage, select, update}'::text[]) as privilege
  where case when relkind = 'S' then has_sequence_privilege(role, pg_class.oid, privilege) end
  union all
  select format('execute on %s', proname)
  from asked join pg_proc on pronamespace = schema
  where has_function_privilege(role, pg_proc.oid, 'execute') and not has_function_privilege('public', pg_proc.oid, 'execute')
)
select permission from unbound
union all
select permission from bound where not exists (select from unbound where permission like 'everything%')
order by permission
