-- Backlogs in which a tenant has unfinished rows with a key. /*own*/ is own_keyed.sql.
-- $1 namespaces, or null for all   $2 the tenant
with /*own $2*/
select distinct destination, namespace from own where $1::text[] is null or namespace = any($1)
