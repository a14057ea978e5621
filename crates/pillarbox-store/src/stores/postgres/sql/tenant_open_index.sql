-- With row-level security only: the rows of a tenant that are not delivered, by what the indexes know of their state. A claim of a
-- row that was not tried before changes none of these columns.
create index concurrently if not exists outbox_events_open_of_tenant on pillarbox.outbox_events (tenant_id, open, seq)
where open is not null and tenant_id is not null
