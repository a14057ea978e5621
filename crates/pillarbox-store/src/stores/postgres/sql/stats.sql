-- Counts exactly while the table is small, or the tenant's part of it.
-- $1 namespaces, or null for all   $2 the cap   $3 the tenant, or null for all
-- Reads at most $2 rows of the table. Index: outbox_events_of_tenant, for a tenant.
with sample as materialized (
  select status, namespace, destination, next_attempt_at from pillarbox.outbox_events
  where $3::uuid is null or tenant_id = $3
  -- In the order of the index, for a tenant. Without an order the planner reads the table for a large tenant, and all that is before its rows.
  order by case when $3::uuid is null then null else seq end limit $2 + 1
), small as (
  select count(*) <= $2 as exact from sample
), counted as (
  select
    count(*) filter (where status = 'pending') as pending,
    count(*) filter (where status = 'processing') as processing,
    count(*) filter (where status = 'delivered') as delivered,
    count(*) filter (where status = 'dead') as dead,
    count(*) filter (where status not in ('pending', 'processing', 'delivered', 'dead')) as unknown,
    count(*) filter (where status = 'pending' and destination = 'unrouted') as unrouted,
    extract(epoch from now() - min(next_attempt_at)
      filter (where status = 'pending' and next_attempt_at <= now() and isfinite(next_attempt_at)))::float8 as oldest
  from sample
  where $1::text[] is null or namespace = any($1)
)
select exact, pending, processing, delivered, dead, unknown, unrouted, oldest from counted, small
