-- Pending rows, up to a limit.
-- $1 namespaces, or null for all   $2 how many   $3 the tenant, or null for all
-- Index: outbox_events_fresh, outbox_events_waiting, outbox_events_keyed.
(select id from pillarbox.outbox_events
 where open = 0 and lane is null and status = 'pending'
   and ($1::text[] is null or namespace = any($1)) and ($3::uuid is null or tenant_id = $3) limit $2)
union all
(select id from pillarbox.outbox_events
 where open = 1 and lane is null and status = 'pending'
   and ($1::text[] is null or namespace = any($1)) and ($3::uuid is null or tenant_id = $3) limit $2)
union all
(select id from pillarbox.outbox_events
 where open < 3 and lane is not null and status = 'pending'
   and ($1::text[] is null or namespace = any($1)) and ($3::uuid is null or tenant_id = $3) limit $2)
limit $2
