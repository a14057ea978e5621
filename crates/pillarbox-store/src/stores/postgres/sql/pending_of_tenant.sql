-- Pending rows of a tenant, up to a limit.
-- $1 namespaces, or null for all   $2 how many   $3 the tenant
-- Index: outbox_events_open_of_tenant.
(select id from pillarbox.outbox_events
 where tenant_id = $3 and open = 0 and status = 'pending' and ($1::text[] is null or namespace = any($1)) order by seq limit $2)
union all
(select id from pillarbox.outbox_events
 where tenant_id = $3 and open = 1 and status = 'pending' and ($1::text[] is null or namespace = any($1)) order by seq limit $2)
limit $2
