-- Counts within bounds: exactly while the table is small, else what the partial indexes tell, up to a cap.
-- $1 namespaces, or null for all   $2 the cap
-- Reads at most $2 rows of the table, and $2 entries of each partial index.
with sample as materialized (
  select status, namespace from pillarbox.outbox_events limit $2 + 1
), small as (
  select count(*) <= $2 as exact from sample
), counted as (
  select
    count(*) filter (where status = 'pending') as pending,
    count(*) filter (where status = 'processing') as processing,
    count(*) filter (where status = 'delivered') as delivered,
    count(*) filter (where status = 'dead') as dead,
    count(*) filter (where status not in ('pending', 'processing', 'delivered', 'dead')) as unknown
  from sample
  where $1::text[] is null or namespace = any($1)
)
select exact, pending, processing, delivered, dead, unknown, (
    select extract(epoch from now() - min(next_attempt_at))::float8 from (
      (select next_attempt_at from pillarbox.outbox_events
       where status = 'pending' and next_attempt_at <= created_at and ($1::text[] is null or namespace = any($1))
       order by seq limit 1)
      union all
      (select next_attempt_at from pillarbox.outbox_events
       where status = 'pending' and next_attempt_at > created_at and next_attempt_at <= now()
         and ($1::text[] is null or namespace = any($1))
       order by next_attempt_at, seq limit 1)
    ) as oldest
  ) as oldest
from counted, small
