-- The keys of these backlogs whose first unfinished row is pending and was never tried.
-- $1 destinations ('' for none)   $2 namespaces   $3 how many   $4 up to how many rows behind a head are counted
-- $5 the tenant, or null for all
-- Index: outbox_events_keyed. Steps from key to key, at most twice as often as keys are asked for, and once per backlog.
with recursive given as materialized (
  select * from unnest($1::text[], $2::text[]) with ordinality as g (destination, namespace, place)
), stepped as (
  select g.place, g.destination, g.namespace, (-1)::smallint as lane, ''::text collate "C" as key, null::uuid as head,
    false as waits, 0::bigint as found, 0::bigint as step
  from given g where g.place = 1
  union all
  select next.place, next.destination, next.namespace, next.lane, next.key, next.head, next.waits,
    s.found + next.waits::int, s.step + 1
  from stepped s cross join lateral (
    (select s.place, s.destination, s.namespace, lane, ordering_key as key, id as head,
       status = 'pending' and attempts = 0 and ($5::uuid is null or tenant_id = $5) as waits
     from pillarbox.outbox_events
     where open < 3 and lane is not null
       and coalesce(destination, '') = s.destination and namespace = s.namespace
       and (lane, ordering_key, seq) > (s.lane, s.key, 9223372036854775807)
     order by coalesce(destination, ''), namespace, lane, ordering_key, seq
     limit 1)
    union all
    (select g.place, g.destination, g.namespace, (-1)::smallint, '', null, false
     from given g where g.place = s.place + 1)
    limit 1
  ) as next
  where s.found < $3 and s.step < 2 * $3 + (select count(*) from given)
)
select h.id as head, h.seq, h.namespace, nullif(h.destination, '') as destination, h.ordering_key, h.status, h.attempts,
  h.last_error as reason, extract(epoch from now() - h.created_at)::float8 as age, h.next_attempt_at, (
    select count(*) from (
      select from pillarbox.outbox_events o
      where o.open < 3 and o.lane is not null
        and coalesce(o.destination, '') = s.destination and o.namespace = s.namespace
        and o.lane = s.lane and o.ordering_key = s.key and o.seq > h.seq
        and ($5::uuid is null or o.tenant_id = $5)
      limit $4
    ) as rest
  ) as behind
from stepped s cross join lateral (select * from pillarbox.outbox_events where id = s.head limit 1) as h
where s.waits
order by s.step
