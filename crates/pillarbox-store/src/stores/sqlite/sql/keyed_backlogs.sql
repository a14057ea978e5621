-- Backlogs that have unfinished rows with a key, the first thousand.
-- ?1 namespaces as a JSON array, or null for all
-- Index: outbox_events_keyed; steps from backlog to backlog, with two seeks each.
with recursive step (destination, namespace, number) as (
  select '', '', 0
  union all
  select coalesce(e.destination, ''), e.namespace, s.number + 1
  from step as s
  cross join outbox_events as e on e.rowno = coalesce((
    select rowno from outbox_events
    where lane = 0 and status in ('pending', 'processing', 'dead') and seq is not null
      and coalesce(destination, '') = s.destination and namespace > s.namespace
    order by namespace limit 1
  ), (
    select rowno from outbox_events
    where lane = 0 and status in ('pending', 'processing', 'dead') and seq is not null
      and coalesce(destination, '') > s.destination
    order by coalesce(destination, ''), namespace limit 1
  ))
  where s.number < 1000
)
select destination, namespace from step
where number > 0 and (?1 is null or namespace in (select value from json_each(?1)))
