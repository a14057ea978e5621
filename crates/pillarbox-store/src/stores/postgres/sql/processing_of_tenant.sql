-- Rows of a tenant in processing, up to a limit.
-- $1 namespaces, or null for all   $2 how many   $3 the tenant, which is that of the transaction
-- Index: those of in_flight, then the primary key.
select id from pillarbox.outbox_events
where id = any(array(select held.id from pillarbox.in_flight($2) as held)) and tenant_id = $3
  and ($1::text[] is null or namespace = any($1)) limit $2
