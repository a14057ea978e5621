-- Rows in processing, up to a limit.
-- $1 namespaces, or null for all   $2 how many   $3 the tenant, or null for all
-- Index: the leases, then the primary key row by row; outbox_events_own_leases.
(select e.id
 from pillarbox.leases l cross join lateral unnest(l.rows) as r (id) cross join lateral (
   select id, namespace, tenant_id from pillarbox.outbox_events
   where id = r.id and claim_id = l.claim_id and status || '' = 'processing' and not own_lease
   limit 1
 ) as e
 where ($1::text[] is null or e.namespace = any($1)) and ($3::uuid is null or e.tenant_id = $3)
 limit $2)
union all
(select id from pillarbox.outbox_events
 where own_until is not null and ($1::text[] is null or namespace = any($1))
   and ($3::uuid is null or tenant_id = $3) limit $2)
limit $2
