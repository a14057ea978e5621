-- The keys of these backlogs whose first unfinished row of the tenant is pending and was never tried. /*own*/ is own_keyed.sql.
-- $1 destinations ('' for none)   $2 namespaces   $3 how many   $4 up to how many rows behind a head are counted   $5 the tenant
with /*own $5*/, head as materialized (
  select o.* from own o
  where o.place = 1 and o.status = 'pending' and o.attempts = 0
    and (o.destination, o.namespace) in (select * from unnest($1::text[], $2::text[]))
  order by o.seq
  limit $3
)
select e.id as head, e.seq, e.namespace, nullif(e.destination, '') as destination, e.ordering_key, e.status, e.attempts,
  e.last_error as reason, extract(epoch from now() - e.created_at)::float8 as age, e.next_attempt_at, least(h.behind, $4) as behind
from head h cross join lateral (select * from pillarbox.outbox_events where id = h.id limit 1) as e
order by e.seq
