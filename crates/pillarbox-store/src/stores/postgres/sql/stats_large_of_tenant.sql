-- Counts the rows of a tenant that has many, up to a cap. /*processing*/ is processing_of_tenant.sql. The oldest row is the oldest that
-- was read.
-- $1 namespaces, or null for all   $2 the cap   $3 the tenant
-- Index: outbox_events_open_of_tenant. Reads $2 rows of each state at most, but for rows in flight and of other namespaces.
with pending as materialized (
  (select destination, next_attempt_at from pillarbox.outbox_events
   where tenant_id = $3 and open = 0 and status = 'pending' and ($1::text[] is null or namespace = any($1)) order by seq limit $2)
  union all
  (select destination, next_attempt_at from pillarbox.outbox_events
   where tenant_id = $3 and open = 1 and status = 'pending' and ($1::text[] is null or namespace = any($1)) order by seq limit $2)
)
select
  (select count(*) from pending) as pending,
  (select count(*) from (
    /*processing*/
  ) as held) as processing,
  (select count(*) from (select from pillarbox.outbox_events
    where tenant_id = $3 and open = 2 and ($1::text[] is null or namespace = any($1)) order by seq limit $2) as dead) as dead,
  (select count(*) from (select from pillarbox.outbox_events
    where tenant_id = $3 and open = 3 and ($1::text[] is null or namespace = any($1)) order by seq limit $2) as unknown) as unknown,
  (select count(*) from pending where destination = 'unrouted') as unrouted,
  (select extract(epoch from now() - min(next_attempt_at))::float8 from pending
    where next_attempt_at <= now() and isfinite(next_attempt_at)) as oldest,
  0::bigint as total
