-- Counts rows: exactly while the table is small. Later it counts by the partial indexes up to a cap, and estimates the
-- delivered rows from the newest ones.
-- ?1 namespaces as a JSON array, or null for all   ?2 the cap   /*tenant*/ is the tenant
-- Reads the newest ?2 rows, at most ?2 entries of each partial index, and the first of each backlog for the oldest.
with recursive fresh (destination, namespace) as (
  select '', ''
  union all
  select coalesce(e.destination, ''), e.namespace
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
), waiting (destination, namespace) as (
  select '', ''
  union all
  select coalesce(e.destination, ''), e.namespace
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
), lane (lane) as (
  values (null), (0)
), span as materialized (
  select coalesce((select max(rowno) from outbox_events) - (select min(rowno) from outbox_events) + 1, 0) as width
), newest as materialized (
  select status from (
    select status, namespace, tenant_id from outbox_events order by rowno desc limit ?2
  )
  where (?1 is null or namespace in (select value from json_each(?1))) /*tenant*/
)
select
  (select width from span) <= ?2 as exact,
  (select count(*) from (
    select 1 from outbox_events
    where status = 'pending' and next_attempt_at <= created_at and seq is not null
      and (?1 is null or namespace in (select value from json_each(?1))) /*tenant*/
    limit ?2
  )) + (select count(*) from (
    select 1 from outbox_events
    where status = 'pending' and next_attempt_at > created_at and seq is not null
      and (?1 is null or namespace in (select value from json_each(?1))) /*tenant*/
    limit ?2
  )) as pending,
  (select count(*) from (
    select 1 from outbox_events
    where status = 'processing' and (?1 is null or namespace in (select value from json_each(?1))) /*tenant*/
    limit ?2
  )) as processing,
  (select count(*) from (
    select 1 from outbox_events
    where status = 'dead' and (?1 is null or namespace in (select value from json_each(?1))) /*tenant*/
    limit ?2
  )) as dead,
  (select count(*) from (
    select 1 from outbox_events
    where status not in ('pending', 'processing', 'delivered', 'dead')
      and (?1 is null or namespace in (select value from json_each(?1))) /*tenant*/
    limit ?2
  )) as unknown,
  (select count(*) from (
    select 1 from outbox_events
    where status = 'pending' and destination = 'unrouted'
      and (?1 is null or namespace in (select value from json_each(?1))) /*tenant*/
    limit ?2
  )) as unrouted,
  (select count(*) from newest where status = 'delivered') * max((select width from span), ?2) / ?2 as delivered,
  (select max((julianday('now') - julianday(at)) * 86400.0) from (
    select (
      select next_attempt_at from outbox_events
      where status = 'pending' and next_attempt_at <= created_at and seq is not null
        and coalesce(destination, '') = s.destination and namespace = s.namespace and lane is l.lane /*tenant*/
      order by seq limit 1
    ) as at
    from fresh as s cross join lane as l
    where ?1 is null or s.namespace in (select value from json_each(?1))
    union all
    select (
      select next_attempt_at from outbox_events
      where status = 'pending' and next_attempt_at > created_at and seq is not null
        and coalesce(destination, '') = s.destination and namespace = s.namespace and lane is l.lane /*tenant*/
        and next_attempt_at <= strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
      order by next_attempt_at limit 1
    )
    from waiting as s cross join lane as l
    where ?1 is null or s.namespace in (select value from json_each(?1))
  )) as oldest
