-- Which of these privileges in an outbox the current role lacks, as positions in the list from 0. What is not there counts as
-- granted: that the schema is another one is found out elsewhere.
-- $1 schema   $2 privileges   $3 objects: relations, functions, or null for the schema   $4 columns, or null for the whole object
select (number - 1)::int as position
from unnest($2::text[], $3::text[], $4::text[]) with ordinality as needed (privilege, object, "column", number)
join pg_namespace n on n.nspname = $1::text::name
where case
    when object is null then not has_schema_privilege(n.oid, privilege)
    when privilege = 'execute' then exists (
      select from pg_proc p
      where p.pronamespace = n.oid and p.proname = object and not has_function_privilege(p.oid, privilege))
    when "column" is not null then exists (
      select from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = "column" and not a.attisdropped
      where c.relnamespace = n.oid and c.relname = object and not has_column_privilege(c.oid, a.attnum, privilege))
    else exists (
      select from pg_class c
      where c.relnamespace = n.oid and c.relname = object and not case c.relkind
        when 'S' then has_sequence_privilege(c.oid, privilege) else has_table_privilege(c.oid, privilege) end) end
order by number
