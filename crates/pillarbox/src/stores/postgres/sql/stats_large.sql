-- Counts of a table that is too large to be counted: what the partial indexes tell up to a cap, and for
-- what is delivered the planner's estimate of the table less the rest.
-- $1 namespaces, or null for all   $2 the cap
select
  (select count(*) from (select from pillarbox.outbox_events
    where status = 'pending' and next_attempt_at <= created_at
      and ($1::text[] is null or namespace = any($1)) limit $2) as fresh)
  + (select count(*) from (select from pillarbox.outbox_events
    where status = 'pending' and next_attempt_at > created_at
      and ($1::text[] is null or namespace = any($1)) limit $2) as waiting) as pending,
  (select count(*) from (select from pillarbox.outbox_events
    where status = 'processing' and ($1::text[] is null or namespace = any($1)) limit $2) as leased) as processing,
  (select count(*) from (select from pillarbox.outbox_events
    where status = 'dead' and ($1::text[] is null or namespace = any($1)) limit $2) as dead) as dead,
  (select count(*) from (select from pillarbox.outbox_events
    where status not in ('pending', 'processing', 'delivered', 'dead')
      and ($1::text[] is null or namespace = any($1)) limit $2) as unknown) as unknown,
  (select greatest(reltuples, 0)::bigint from pg_class where oid = 'pillarbox.outbox_events'::regclass) as total
