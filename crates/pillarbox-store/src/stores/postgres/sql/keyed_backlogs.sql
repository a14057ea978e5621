-- Backlogs that have unfinished rows with a key, the first thousand.
-- $1 namespaces, or null for all
-- Index: outbox_events_keyed; steps from backlog to backlog.
with recursive stepped as (
  select ''::text collate "C" as destination, ''::text collate "C" as namespace, 0 as step
  union all
  select next.destination, next.namespace, s.step + 1 from stepped s cross join lateral (
    select coalesce(destination, '') as destination, namespace from pillarbox.outbox_events
    where open < 3 and lane is not null
      and (coalesce(destination, ''), namespace) > (s.destination, s.namespace)
    order by coalesce(destination, ''), namespace, lane, ordering_key, seq limit 1
  ) as next
  where s.step < 1000
)
select destination, namespace from stepped
where step > 0 and ($1::text[] is null or namespace = any($1))
