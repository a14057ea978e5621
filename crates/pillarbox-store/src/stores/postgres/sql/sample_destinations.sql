-- Counts the rows of these destinations that are pending or dead.
-- $1 destinations; '' for none yet   $2 up to how many rows are read in each index, of each namespace and destination
-- Index: outbox_events_fresh, outbox_events_waiting, outbox_events_fresh_keyed, outbox_events_tried, outbox_events_dead_at;
-- steps from namespace to namespace, the first hundred of a destination. Never a delivered row.
--
-- Limits come before conditions that no index knows, so that they bound what is read. Rows that have waited longest come first,
-- unless they have a key.
with recursive backlog as (
  select name collate "C" as destination, ''::text collate "C" as namespace, 0 as step from unnest($1::text[]) as name
  union all
  select b.destination, next.namespace, b.step + 1 from backlog b cross join lateral (
    select one.namespace from (
      (select namespace from pillarbox.outbox_events
       where open = 0 and lane is null and coalesce(destination, '') = b.destination and namespace > b.namespace
       order by coalesce(destination, ''), namespace, seq limit 1)
      union all
      (select namespace from pillarbox.outbox_events
       where open = 1 and lane is null and coalesce(destination, '') = b.destination and namespace > b.namespace
       order by coalesce(destination, ''), namespace, next_attempt_at, seq limit 1)
      union all
      (select namespace from pillarbox.outbox_events
       where open < 3 and lane is not null and coalesce(destination, '') = b.destination and namespace > b.namespace
       order by coalesce(destination, ''), namespace, lane, ordering_key, seq limit 1)
    ) as one
    order by one.namespace limit 1
  ) as next
  where b.step < 100
), waiting as (
  select b.destination, sum(r.pending) as pending, min(r.due) as due from backlog b cross join lateral (
    select count(*) as pending, min(next_attempt_at) filter (where next_attempt_at <= now() and isfinite(next_attempt_at)) as due
    from (
    (select status, next_attempt_at from pillarbox.outbox_events
     where open = 0 and lane is null and coalesce(destination, '') = b.destination and namespace = b.namespace
     order by coalesce(destination, ''), namespace, seq limit $2)
    union all
    (select status, next_attempt_at from pillarbox.outbox_events
     where open = 1 and lane is null and coalesce(destination, '') = b.destination and namespace = b.namespace
     order by coalesce(destination, ''), namespace, next_attempt_at, seq limit $2)
    union all
    (select status, next_attempt_at from pillarbox.outbox_events
     where open = 0 and lane is not null and coalesce(destination, '') = b.destination and namespace = b.namespace
     order by coalesce(destination, ''), namespace, lane >> 7, seq limit $2)
    union all
    (select status, next_attempt_at from pillarbox.outbox_events
     where open in (1, 2) and lane is not null and coalesce(destination, '') = b.destination and namespace = b.namespace
     order by coalesce(destination, ''), namespace, lane, ordering_key, seq limit $2)
    ) as one
    where status = 'pending'
  ) as r
  where b.step > 0
  group by b.destination
)
select name as destination, coalesce(w.pending, 0)::bigint as pending, coalesce(extract(epoch from now() - w.due), 0)::float8 as oldest,
  (select count(*) from (
    select from pillarbox.outbox_events where open = 2 and coalesce(destination, '') = name collate "C" limit $2
  ) as dead) as dead
from unnest($1::text[]) as name left join waiting w on w.destination = name collate "C"
