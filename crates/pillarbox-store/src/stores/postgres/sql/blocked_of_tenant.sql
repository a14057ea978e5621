-- Blocked keys of a tenant: its first unfinished row of the key failed or is dead. Oldest first. /*own*/ is own_keyed.sql.
-- $1 namespaces, or null for all   $2 how many   $3 up to how many rows behind a head are counted   $4 the tenant
with /*own $4*/, head as materialized (
  select o.* from own o
  where o.place = 1 and (o.status = 'dead' or (o.status = 'pending' and o.attempts > 0))
    and ($1::text[] is null or o.namespace = any($1))
    -- A row without a destination blocks its key at every destination.
    and (o.destination = '' or not exists (
      select from own u
      where u.destination = '' and u.namespace = o.namespace and u.lane = o.lane and u.ordering_key = o.ordering_key
        and u.place = 1 and u.seq < o.seq))
  order by o.seq
  limit $2
)
select e.id as head, e.seq, e.namespace, nullif(e.destination, '') as destination, e.ordering_key, e.status, e.attempts,
  e.last_error as reason, case when isfinite(e.created_at) then extract(epoch from now() - e.created_at) else 0 end::float8 as age,
  case when e.status = 'pending' then e.next_attempt_at end as next_attempt_at, least(h.behind, $3) as behind
from head h cross join lateral (select * from pillarbox.outbox_events where id = h.id limit 1) as e
order by e.seq
