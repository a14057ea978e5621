-- Pending rows, up to a limit.
-- $1 namespaces, or null for all   $2 how many
-- Index: outbox_events_fresh, outbox_events_waiting, outbox_events_keyed.
(select id from pillarbox.outbox_events
 where status = 'pending' and next_attempt_at <= created_at and lane is null
   and ($1::text[] is null or namespace = any($1)) limit $2)
union all
(select id from pillarbox.outbox_events
 where status = 'pending' and next_attempt_at > created_at and lane is null
   and ($1::text[] is null or namespace = any($1)) limit $2)
union all
(select id from pillarbox.outbox_events
 where lane is not null and status in ('pending', 'processing', 'dead') and status = 'pending'
   and ($1::text[] is null or namespace = any($1)) limit $2)
limit $2
