-- Counts within bounds: exactly while the table is small, else what the partial indexes tell, up to a cap,
-- and for the delivered an estimate from the newest rows.
-- ?1 namespaces as a JSON array, or null for all   ?2 the cap
-- Reads the newest ?2 rows, and at most ?2 entries of each partial index.
with span as materialized (
  select coalesce((select max(rowno) from outbox_events) - (select min(rowno) from outbox_events) + 1, 0) as width
), newest as materialized (
  select status from (
    select status, namespace from outbox_events order by rowno desc limit ?2
  )
  where ?1 is null or namespace in (select value from json_each(?1))
)
select
  (select width from span) <= ?2 as exact,
  (select count(*) from (
    select 1 from outbox_events
    where status = 'pending' and next_attempt_at <= created_at and seq is not null
      and (?1 is null or namespace in (select value from json_each(?1)))
    limit ?2
  )) + (select count(*) from (
    select 1 from outbox_events
    where status = 'pending' and next_attempt_at > created_at
      and (?1 is null or namespace in (select value from json_each(?1)))
    limit ?2
  )) as pending,
  (select count(*) from (
    select 1 from outbox_events
    where status = 'processing' and (?1 is null or namespace in (select value from json_each(?1)))
    limit ?2
  )) as processing,
  (select count(*) from (
    select 1 from outbox_events
    where status = 'dead' and (?1 is null or namespace in (select value from json_each(?1)))
    limit ?2
  )) as dead,
  (select count(*) from (
    select 1 from outbox_events
    where status not in ('pending', 'processing', 'delivered', 'dead')
      and (?1 is null or namespace in (select value from json_each(?1)))
    limit ?2
  )) as unknown,
  (select count(*) from newest where status = 'delivered') * max((select width from span), ?2) / ?2 as delivered,
  (select max((julianday('now') - julianday(at)) * 86400.0) from (
    select * from (
      select next_attempt_at as at from outbox_events
      where status = 'pending' and next_attempt_at <= created_at and seq is not null
        and (?1 is null or namespace in (select value from json_each(?1)))
      order by seq limit 1
    )
    union all
    select * from (
      select next_attempt_at as at from outbox_events
      where status = 'pending' and next_attempt_at > created_at
        and next_attempt_at <= strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
        and (?1 is null or namespace in (select value from json_each(?1)))
      order by next_attempt_at, seq limit 1
    )
  )) as oldest
