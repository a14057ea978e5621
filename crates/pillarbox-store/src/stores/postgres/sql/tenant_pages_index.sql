-- With row-level security only: the rows of a tenant, newest first. A claim changes none of these columns.
create index concurrently if not exists outbox_events_of_tenant on pillarbox.outbox_events (tenant_id, seq)
where tenant_id is not null
