-- Rows of a tenant in processing, up to a limit.
-- $1 namespaces, or null for all   $2 how many   $3 the tenant, which is that of the transaction
-- Index: the leases, then the primary key row by row; outbox_events_own_leases.
(select id from pillarbox.outbox_events
 where id = any(array(select held.id from pillarbox.in_flight($2) as held)) and tenant_id = $3
   and ($1::text[] is null or namespace = any($1)) limit $2)
union all
(select id from pillarbox.outbox_events
 where own_until >= '-infinity' and tenant_id = $3 and ($1::text[] is null or namespace = any($1))
 order by own_until limit $2)
limit $2
