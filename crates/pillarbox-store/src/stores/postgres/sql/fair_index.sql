-- For `fair_by = "tenant"` only: fresh rows without a lane, tenant by tenant. They are due from the start, so that a step to
-- the next tenant finds a row to claim, or one in flight. Scheduled and retried rows are in outbox_events_waiting, by due time.
create index concurrently if not exists outbox_events_fair on pillarbox.outbox_events (
  coalesce(destination, ''), namespace, coalesce(tenant_id, '00000000-0000-0000-0000-000000000000'), seq
) where open = 0 and lane is null
