-- Counts a large table by its partial indexes, up to a cap. Delivered rows are the planner's estimate of the table minus
-- the others. The oldest row is the oldest that was read.
-- $1 namespaces, or null for all   $2 the cap
with fresh as materialized (
  select next_attempt_at from pillarbox.outbox_events
  where status = 'pending' and next_attempt_at <= created_at and lane is null
    and ($1::text[] is null or namespace = any($1))
  limit $2
), waiting as materialized (
  select next_attempt_at from pillarbox.outbox_events
  where status = 'pending' and next_attempt_at > created_at and lane is null
    and ($1::text[] is null or namespace = any($1))
  limit $2
), keyed as materialized (
  select next_attempt_at from pillarbox.outbox_events
  where lane is not null and status in ('pending', 'processing', 'dead') and status = 'pending'
    and ($1::text[] is null or namespace = any($1))
  limit $2
), pending as (
  select * from fresh union all select * from waiting union all select * from keyed
)
select
  (select count(*) from pending) as pending,
  (select count(*) from (select from pillarbox.outbox_events
    where status = 'processing' and ($1::text[] is null or namespace = any($1)) limit $2) as leased) as processing,
  (select count(*) from (select from pillarbox.outbox_events
    where status = 'dead' and ($1::text[] is null or namespace = any($1)) limit $2) as dead) as dead,
  (select count(*) from (select from pillarbox.outbox_events
    where status not in ('pending', 'processing', 'delivered', 'dead')
      and ($1::text[] is null or namespace = any($1)) limit $2) as unknown) as unknown,
  (select count(*) from (select from pillarbox.outbox_events
    where status = 'pending' and destination = 'unrouted'
      and ($1::text[] is null or namespace = any($1)) limit $2) as unrouted) as unrouted,
  (select extract(epoch from now() - min(next_attempt_at))::float8 from pending
    where next_attempt_at <= now() and isfinite(next_attempt_at)) as oldest,
  (select greatest(reltuples, 0)::bigint from pg_class where oid = 'pillarbox.outbox_events'::regclass) as total
