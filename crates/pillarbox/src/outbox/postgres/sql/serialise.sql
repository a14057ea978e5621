-- Makes writers of the same keys wait for each other until their transactions end.
-- $1 namespaces   $2 ordering keys
-- Locks: an advisory lock for each key, in the same order for every writer, so that two calls cannot deadlock.
select lock as place, pg_advisory_xact_lock(lock)::text as id from (
  select distinct hashtextextended(namespace || E'\x1f' || key, 8101531) as lock
  from unnest($1::text[], $2::text[]) as k (namespace, key)
  order by lock
) as locks
