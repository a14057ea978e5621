-- The current role, and what it may not do with a table of the outbox, wholly or in some columns: `delete`,
-- `update of some columns`. Without such a table, the role alone.
-- $1 schema   $2 table
select current_user::text as role, (
  select string_agg(case when not has_any_column then privilege else privilege || ' of some columns' end, ', ' order by number)
  from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
  cross join unnest('{select, insert, update, delete}'::text[]) with ordinality as p (privilege, number)
  cross join lateral (
    select case when privilege = 'delete' then false else has_any_column_privilege(c.oid, privilege) end as has_any_column
  ) as columns
  where n.nspname = $1::text::name and c.relname = $2::text::name and c.relkind in ('r', 'p')
    and not has_table_privilege(c.oid, privilege)
) as lacks
