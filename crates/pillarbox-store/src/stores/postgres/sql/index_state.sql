-- Is an index of events there and valid, and is a session at work that creates it? By the simple protocol. /*index*/ is its
-- name. Such a session locks the table like this for as long as it works, and so does a vacuum.
select coalesce(i.indisvalid, false) as valid, i.indexrelid is not null as present, exists (
    select from pg_locks l
    where l.locktype = 'relation' and l.mode = 'ShareUpdateExclusiveLock'
      and l.database = (select oid from pg_database where datname = current_database())
      and l.relation = 'pillarbox.outbox_events'::regclass
  ) as busy
from (select to_regclass('pillarbox./*index*/') as oid) as wanted
left join pg_index i on i.indexrelid = wanted.oid
