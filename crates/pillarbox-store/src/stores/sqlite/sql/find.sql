-- Sources in which something may be due, and the destinations that are paused. What an idle worker asks.
-- ?1 ?2 after which source: destination ('' for none yet) and namespace ('' for the first)
-- ?3 namespaces as a JSON array, or null for all   ?4 how many sources of each kind
-- Index: outbox_events_fresh, outbox_events_waiting: from source to source, two seeks a step, never row by row.
-- outbox_events_leased: only what crashed workers left.
--
-- No clock is asked for what is fresh, so that one that was put back delays nothing new. The steps come in the order
-- of the sources, and end with the limit because nothing sorts them.
with recursive fresh (destination, namespace, number) as (
  select ?1, ?2, 0
  union all
  select coalesce(e.destination, ''), e.namespace, s.number + 1
  from fresh as s
  cross join outbox_events as e on e.rowno = coalesce((
    select rowno from outbox_events
    where status = 'pending' and next_attempt_at <= created_at and seq is not null
      and coalesce(destination, '') = s.destination and namespace > s.namespace
    order by namespace limit 1
  ), (
    select rowno from outbox_events
    where status = 'pending' and next_attempt_at <= created_at and seq is not null
      and coalesce(destination, '') > s.destination
    order by coalesce(destination, ''), namespace limit 1
  ))
), waiting (destination, namespace, number) as (
  select ?1, ?2, 0
  union all
  select coalesce(e.destination, ''), e.namespace, s.number + 1
  from waiting as s
  cross join outbox_events as e on e.rowno = coalesce((
    select rowno from outbox_events
    where status = 'pending' and next_attempt_at > created_at and seq is not null
      and coalesce(destination, '') = s.destination and namespace > s.namespace
    order by namespace limit 1
  ), (
    select rowno from outbox_events
    where status = 'pending' and next_attempt_at > created_at and seq is not null
      and coalesce(destination, '') > s.destination
    order by coalesce(destination, ''), namespace limit 1
  ))
)
select * from (
  select 'fresh' as kind, s.destination, s.namespace, (
    select seq from outbox_events
    where status = 'pending' and next_attempt_at <= created_at and seq is not null
      and coalesce(destination, '') = s.destination and namespace = s.namespace and lane is null
    order by seq limit 1
  ) as lowest, 0 as waited, exists (
    select 1 from outbox_events
    where status = 'pending' and next_attempt_at <= created_at and seq is not null
      and coalesce(destination, '') = s.destination and namespace = s.namespace and lane = 0
  ) as keyed
  from fresh as s
  where s.number > 0 and s.destination <> 'unrouted' and (?3 is null or s.namespace in (select value from json_each(?3)))
  limit ?4
)
union all
select * from (
  select 'waiting', s.destination, s.namespace, null, exists (
    select 1 from outbox_events
    where status = 'pending' and next_attempt_at > created_at and seq is not null
      and coalesce(destination, '') = s.destination and namespace = s.namespace and lane is null
      and next_attempt_at <= strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
  ) as waited, exists (
    select 1 from outbox_events
    where status = 'pending' and next_attempt_at > created_at and seq is not null
      and coalesce(destination, '') = s.destination and namespace = s.namespace and lane = 0
      and next_attempt_at <= strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
  ) as keyed
  from waiting as s
  where s.number > 0 and s.destination <> 'unrouted' and (waited or keyed)
    and (?3 is null or s.namespace in (select value from json_each(?3)))
  limit ?4
)
union all
select * from (
  -- A row with a lane and without a worker needs an owner, who has to know of it.
  select distinct 'leased', coalesce(destination, ''), namespace, null, 0, 1
  from outbox_events
  where status = 'processing' and coalesce(locked_until, '') < strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
    and lane = 0 and coalesce(destination, '') <> 'unrouted'
    and (coalesce(destination, '') > ?1 or coalesce(destination, '') = ?1 and namespace > ?2)
    and (?3 is null or namespace in (select value from json_each(?3)))
  order by coalesce(destination, ''), namespace
  limit ?4
)
union all
select 'paused', destination, '', null, 0, 0 from pillarbox_paused
