-- What the tables hold, for metrics: one row per fact. `name` is a destination ('' for none yet) or a kind of saga.
-- ?1 up to how many rows are read of each kind   ?2 after how long a row in processing is stale, such as '-600.000 seconds'
-- Index: outbox_events_fresh, outbox_events_waiting, outbox_events_leased, outbox_events_dead_there, outbox_events_unknown,
-- outbox_events_blocking and outbox_events_keyed, pillarbox_sagas_open. Never a delivered row. One statement is one snapshot.
with pending as materialized (
  select * from (
    select coalesce(destination, '') as name, next_attempt_at as at from outbox_events
    where status = 'pending' and next_attempt_at <= created_at and seq is not null
    limit ?1
  )
  union all
  select * from (
    select coalesce(destination, ''), next_attempt_at from outbox_events
    where status = 'pending' and next_attempt_at > created_at and seq is not null
    limit ?1
  )
), held as materialized (
  select coalesce(destination, '') as name, updated_at as at from outbox_events where status = 'processing' limit ?1
)
select 'pending' as what, name, count(*) * 1.0 as value from pending group by name
union all
select 'waited', name, coalesce(max((julianday('now') - julianday(at)) * 86400.0), 0.0) from pending
where at <= strftime('%Y-%m-%dT%H:%M:%f000Z', 'now') group by name
union all
select 'processing', name, count(*) * 1.0 from held group by name
union all
select 'stale', '', count(*) * 1.0 from held where at < strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', ?2)
union all
select 'oldest', '', coalesce(max((julianday('now') - julianday(at)) * 86400.0), 0.0) from held
union all
select 'dead', name, count(*) * 1.0 from (
  select coalesce(destination, '') as name from outbox_events where status = 'dead' limit ?1
) group by name
union all
select 'unknown', name, count(*) * 1.0 from (
  select coalesce(destination, '') as name from outbox_events
  where status not in ('pending', 'processing', 'delivered', 'dead') limit ?1
) group by name
union all
select 'blocked', '', count(*) * 1.0 from (
  select 1 from outbox_events as e indexed by outbox_events_blocking
  where status = 'dead' and lane = 0
    and not exists (
      select 1 from outbox_events as other
      where other.lane = 0 and other.status in ('pending', 'processing', 'dead') and other.seq is not null
        and coalesce(other.destination, '') in ('', coalesce(e.destination, ''))
        and other.namespace = e.namespace and other.ordering_key = e.ordering_key and other.seq < e.seq
    )
  limit ?1
)
union all
select 'alive', '', count(*) * 1.0 from pillarbox_workers
where strftime('%Y-%m-%dT%H:%M:%f000Z', seen_at, ttl) >= strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
union all
select iif(disabled, 'disabled', 'paused'), destination, 1.0 from pillarbox_paused
union all
select status, name, count(*) * 1.0 from (
  select status, name from pillarbox_sagas where status in ('running', 'compensating') limit ?1
) group by status, name
union all
select 'retried', '', count * 1.0 from pillarbox_totals where what = 'manual_retries'
