-- Rows whose lease expired and that this worker may claim. The beginning of a statement, which runs after
-- end_leases.sql: then each of them has a lease of its own.
-- $1 worker   $2 attempts from   $3 attempts below   $4 the default limit of attempts
-- $5 namespaces, or null for all   $6 unavailable destinations   $7 how many
-- Locks: the worker's lane ranges for share.
-- Index: outbox_events_own_leases, outbox_events_keyed.
--
-- A row with a key is found by its lease and claimed by its key. The run begins with the key's first unfinished row,
-- including rows without a destination, and ends before the first that cannot be claimed. The first row is checked before
-- the run, so that rows of blocked keys do not fill the thousand that are read.
with mine as materialized (
  select namespace, destination, int4range(number * 4096 / ranges, (number + 1) * 4096 / ranges) as lanes
  from pillarbox.lane_ranges
  where owner = $1 and leased_until >= now() and not leaving
  for share skip locked
), expired as materialized (
  select e.id, e.seq, e.lane, e.namespace, e.ordering_key, coalesce(e.destination, '') as destination,
    pillarbox.size(e.payload, e.body) as size
  from pillarbox.outbox_events e
  where e.own_until is not null and e.own_until < now()
    and e.attempts >= $2 and e.attempts < $3 and e.attempts < coalesce(e.max_attempts, $4)
    and ($5::text[] is null or e.namespace = any($5))
    and coalesce(e.destination, '') <> all($6::text[])
    and (e.lane is null or (
      exists (select from mine m where m.namespace = e.namespace and m.destination = coalesce(e.destination, '')
        and m.lanes @> e.lane::int)
      and (select h.own_until is not null and h.own_until < now()
             and h.attempts >= $2 and h.attempts < $3 and h.attempts < coalesce(h.max_attempts, $4)
           from pillarbox.outbox_events h
           where h.open < 3 and h.lane is not null
             and coalesce(h.destination, '') = coalesce(e.destination, '') and h.namespace = e.namespace
             and h.lane = e.lane and h.ordering_key = e.ordering_key
           order by coalesce(h.destination, ''), h.namespace, h.lane, h.ordering_key, h.seq
           limit 1)))
  order by e.own_until
  limit 1000
), run as materialized (
  select k.namespace, k.ordering_key, k.destination, r.id, r.seq, r.size, r.destination = k.destination as own,
    bool_and(r.ready) over (partition by k.namespace, k.ordering_key, k.destination
      order by r.seq rows unbounded preceding) as unbroken
  from (
    select distinct namespace, lane, ordering_key, destination from expired where lane is not null
  ) as k cross join lateral (
    (select id, seq, k.destination as destination, pillarbox.size(payload, body) as size,
       own_until is not null and own_until < now()
         and attempts >= $2 and attempts < $3 and attempts < coalesce(max_attempts, $4) as ready
     from pillarbox.outbox_events
     where open < 3 and lane is not null
       and coalesce(destination, '') = k.destination and namespace = k.namespace
       and lane = k.lane and ordering_key = k.ordering_key
     order by coalesce(destination, ''), namespace, lane, ordering_key, seq
     limit $7)
    union all
    (select id, seq, '', pillarbox.size(payload, body),
       own_until is not null and own_until < now()
         and attempts >= $2 and attempts < $3 and attempts < coalesce(max_attempts, $4)
         -- Another worker may own the lane of rows without a destination. Then this run waits for that worker.
         and exists (select from mine m where m.namespace = k.namespace and m.destination = ''
           and m.lanes @> k.lane::int)
     from pillarbox.outbox_events
     where k.destination <> '' and open < 3 and lane is not null
       and coalesce(destination, '') = '' and namespace = k.namespace
       and lane = k.lane and ordering_key = k.ordering_key
     order by coalesce(destination, ''), namespace, lane, ordering_key, seq
     limit $7)
  ) as r
), wanted as materialized (
  select id, seq, size from (
    select id, seq, size from expired where lane is null
    union all
    select id, seq, size from run where own and unbroken
  ) as candidate
  order by seq, id
  limit $7
)
