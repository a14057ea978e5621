-- For `fair_by = "tenant"` only: pending rows without a lane, tenant by tenant.
create index if not exists outbox_events_fair on pillarbox.outbox_events (
  coalesce(destination, ''), namespace, coalesce(tenant_id, '00000000-0000-0000-0000-000000000000'), next_attempt_at, seq
) where status = 'pending' and lane is null
