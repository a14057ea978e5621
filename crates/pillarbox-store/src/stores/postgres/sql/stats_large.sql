-- Counts a large table by its partial indexes, up to a cap. /*processing*/ is processing.sql. `total` is the planner's
-- estimate of the table. The oldest row is the oldest that was read.
-- $1 namespaces, or null for all   $2 the cap   $3 the tenant, or null for all
with fresh as materialized (
  select next_attempt_at from pillarbox.outbox_events
  where open = 0 and lane is null and status = 'pending'
    and ($1::text[] is null or namespace = any($1)) and ($3::uuid is null or tenant_id = $3)
  limit $2
), waiting as materialized (
  select next_attempt_at from pillarbox.outbox_events
  where open = 1 and lane is null and status = 'pending'
    and ($1::text[] is null or namespace = any($1)) and ($3::uuid is null or tenant_id = $3)
  limit $2
), keyed as materialized (
  select next_attempt_at from pillarbox.outbox_events
  where open < 3 and lane is not null and status = 'pending'
    and ($1::text[] is null or namespace = any($1)) and ($3::uuid is null or tenant_id = $3)
  limit $2
), pending as (
  select * from fresh union all select * from waiting union all select * from keyed
)
select
  (select count(*) from pending) as pending,
  (select count(*) from (
    /*processing*/
  ) as held) as processing,
  (select count(*) from (select from pillarbox.outbox_events
    where open = 2 and ($1::text[] is null or namespace = any($1))
      and ($3::uuid is null or tenant_id = $3) limit $2) as dead) as dead,
  (select count(*) from (select from pillarbox.outbox_events
    where open = 3 and ($1::text[] is null or namespace = any($1))
      and ($3::uuid is null or tenant_id = $3) limit $2) as unknown) as unknown,
  (select count(*) from (select from pillarbox.outbox_events
    where open < 2 and destination = 'unrouted' and status = 'pending'
      and ($1::text[] is null or namespace = any($1)) and ($3::uuid is null or tenant_id = $3) limit $2) as unrouted) as unrouted,
  (select extract(epoch from now() - min(next_attempt_at))::float8 from pending
    where next_attempt_at <= now() and isfinite(next_attempt_at)) as oldest,
  (select greatest(reltuples, 0)::bigint from pg_class where oid = 'pillarbox.outbox_events'::regclass) as total
