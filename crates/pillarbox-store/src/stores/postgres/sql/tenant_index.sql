-- For quotas of tenants only: unfinished rows by tenant, for their count.
create index concurrently if not exists outbox_events_by_tenant on pillarbox.outbox_events (tenant_id)
where open < 2 and tenant_id is not null
