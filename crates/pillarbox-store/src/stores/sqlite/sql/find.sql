-- Backlogs that may have due rows, and paused destinations. An idle worker runs it.
-- ?1 ?2 after which backlog: destination ('' for none yet) and namespace ('' for the first)
-- ?3 namespaces as a JSON array, or null for all   ?4 how many backlogs of each kind
-- ?5 the destinations to find, as a sorted JSON array, or null for all. Rows for others are passed over.
-- Index: outbox_events_fresh, outbox_events_waiting. Steps from backlog to backlog, with two seeks each, never from row to
-- row. outbox_events_leased for rows of dead workers.
--
-- Fresh rows are found without a clock, so that a clock that was set back delays no new row. The steps follow the order of
-- the backlogs. The limit ends them, because nothing sorts them.
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
  ), case when ?5 is null then (
    select rowno from outbox_events
    where status = 'pending' and next_attempt_at <= created_at and seq is not null
      and coalesce(destination, '') > s.destination
    order by coalesce(destination, ''), namespace limit 1
  ) else (
    select (
      select rowno from outbox_events
      where status = 'pending' and next_attempt_at <= created_at and seq is not null
        and coalesce(destination, '') = served.value
      order by namespace limit 1
    ) as first
    from json_each(?5) as served where served.value > s.destination and first is not null
    order by served.key limit 1
  ) end)
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
  ), case when ?5 is null then (
    select rowno from outbox_events
    where status = 'pending' and next_attempt_at > created_at and seq is not null
      and coalesce(destination, '') > s.destination
    order by coalesce(destination, ''), namespace limit 1
  ) else (
    select (
      select rowno from outbox_events
      where status = 'pending' and next_attempt_at > created_at and seq is not null
        and coalesce(destination, '') = served.value
      order by namespace limit 1
    ) as first
    from json_each(?5) as served where served.value > s.destination and first is not null
    order by served.key limit 1
  ) end)
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
  -- A row with a lane and an expired lease needs an owner of its lane, who must know of it.
  select distinct 'leased', coalesce(destination, ''), namespace, null, 0, 1
  from outbox_events
  where status = 'processing' and coalesce(locked_until, '') < strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
    and lane = 0 and coalesce(destination, '') <> 'unrouted'
    and (coalesce(destination, '') > ?1 or coalesce(destination, '') = ?1 and namespace > ?2)
    and (?3 is null or namespace in (select value from json_each(?3)))
    and (?5 is null or coalesce(destination, '') = '' or destination in (select value from json_each(?5)))
  order by coalesce(destination, ''), namespace
  limit ?4
)
union all
select 'paused', destination, '', null, 0, 0 from pillarbox_paused
