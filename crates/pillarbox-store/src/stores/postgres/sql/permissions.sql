-- What a role may do in an outbox, also by its memberships, each as `select on outbox_events`. What it may do only after SET ROLE
-- names that role. If it is bound by nothing, that is all that is listed.
-- $1 role   $2 schema
with asked as (
  select r.oid as role, r.rolsuper, n.oid as schema, n.nspowner
  from pg_roles r, pg_namespace n
  where r.rolname = $1::text::name and n.nspname = $2::text::name
), roles as (
  -- The role, and those that it may become. A superuser may become every one. Attributes, such as CREATEROLE, are not inherited.
  select r.*, r.oid = role as is_itself, pg_has_role(role, r.oid, 'usage') as is_inherited
  from asked join pg_roles r on case when asked.rolsuper then r.oid = role else pg_has_role(role, r.oid, 'member') end
), unbound (is_all, is_itself, rolname, permission) as (
  select true, is_itself, rolname, 'everything: it is a superuser' from roles where rolsuper
  union all
  select true, true, rolname, case
    when is_itself then 'everything: it is the owner of the outbox'
    else format('everything: it is a member of %s, the owner of the outbox', rolname)
  end
  from asked join roles on oid = nspowner where not asked.rolsuper
  union all
  -- Since PostgreSQL 16 such a role may join only those that it administers, so it is a member of them.
  select true, is_itself, rolname, 'everything: it may join every role that is no superuser (createrole)'
  from roles where rolcreaterole and not rolsuper and current_setting('server_version_num')::int < 160000
  union all
  select true, is_inherited, rolname, 'everything: it may run programs or write files as the server'
  from roles where rolname in ('pg_execute_server_program', 'pg_write_server_files')
  union all
  select false, is_itself, rolname, 'the rows of others: it bypasses row-level security' from roles where rolbypassrls
  union all
  select false, is_itself, rolname, 'all content: it may replicate the database' from roles where rolreplication
  union all
  select false, is_inherited, rolname, 'all content: it may read the files of the server' from roles where rolname = 'pg_read_server_files'
  union all
  select false, is_inherited, rolname, 'the statements of others: it may read all statistics'
  from roles where rolname = 'pg_read_all_stats'
), bound (is_itself, rolname, permission) as (
  select is_itself, rolname, format('%s on the schema', privilege)
  from asked, roles, unnest('{usage, create}'::text[]) as privilege
  where has_schema_privilege(roles.oid, schema, privilege)
  union all
  select is_itself, rolname, format('%s on %s', privilege, relname)
  from roles, asked join pg_class c on relnamespace = schema and relkind in ('r', 'p', 'v', 'm'),
    unnest('{select, insert, update, delete, truncate, references, trigger}'::text[]) as privilege
  where has_table_privilege(roles.oid, c.oid, privilege)
  union all
  select is_itself, rolname, format('%s (%s) on %s', privilege, attname, relname)
  from roles, asked join pg_class c on relnamespace = schema and relkind in ('r', 'p', 'v', 'm')
    join pg_attribute on attrelid = c.oid and attnum > 0 and not attisdropped,
    unnest('{select, insert, update, references}'::text[]) as privilege
  where has_column_privilege(roles.oid, attrelid, attnum, privilege)
    and not has_table_privilege(roles.oid, attrelid, privilege)
  union all
  select is_itself, rolname, format('%s on %s', privilege, relname)
  from roles, asked join pg_class c on relnamespace = schema, unnest('{usage, select, update}'::text[]) as privilege
  where case when relkind = 'S' then has_sequence_privilege(roles.oid, c.oid, privilege) end
  union all
  -- Of a policy, a member has what its role has.
  select is_inherited, rolname, 'the rows of every tenant'
  from roles, asked join pg_class c on relnamespace = schema and relrowsecurity join pg_policy p on p.polrelid = c.oid
  where polname = 'every_tenant' and roles.oid = any(polroles)
  union all
  select is_itself, rolname, format('execute on %s', proname)
  from roles, asked join pg_proc p on pronamespace = schema
  where has_function_privilege(roles.oid, p.oid, 'execute') and not has_function_privilege('public', p.oid, 'execute')
)
select permission || case when bool_or(is_itself) then '' else format(' (set role %s)', min(quote_ident(rolname))) end
from (
  select is_itself, rolname, permission from unbound where is_all or not exists (select from unbound where is_all)
  union all
  select is_itself, rolname, permission from bound where not exists (select from unbound where is_all)
) as found
group by permission
order by 1
