-- Takes the place of writers that race on the same keys: one after another, until their transactions end.
-- $1 namespaces   $2 ordering keys
-- Locks: an advisory lock for each key, in one order for everybody, so that no two can wait for each other.
select lock as place, pg_advisory_xact_lock(lock)::text as id from (
  select distinct hashtextextended(namespace || E'\x1f' || key, 8101531) as lock
  from unnest($1::text[], $2::text[]) as k (namespace, key)
  order by lock
) as locks
