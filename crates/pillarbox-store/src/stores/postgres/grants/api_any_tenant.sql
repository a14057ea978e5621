grant usage on schema pillarbox to api_any_tenant;
grant select, delete on pillarbox.outbox_events to api_any_tenant;
grant insert (
  id, seq, namespace, topic, event_type, event_version, aggregate_type, aggregate_id, tenant_id, dedupe_key,
  ordering_key, severity, payload, body, content_type, content_encoding, headers, destination, next_attempt_at
) on pillarbox.outbox_events to api_any_tenant;
grant update (
  status, attempts, next_attempt_at, unordered, by_key, locked_by, locked_until, claim_id, last_error, updated_at
) on pillarbox.outbox_events to api_any_tenant;
grant usage on sequence pillarbox.outbox_seq to api_any_tenant;
grant select on pillarbox.adopted, pillarbox.importers, pillarbox.import_failures to api_any_tenant;
grant update (ended, write_back_pending) on pillarbox.adopted to api_any_tenant;
grant update (next_attempt_at) on pillarbox.import_failures to api_any_tenant;
grant select, insert, delete on pillarbox.destinations to api_any_tenant;
grant select on pillarbox.leases, pillarbox.lane_ranges, pillarbox.workers to api_any_tenant;
grant select on pillarbox.quotas, pillarbox.over_quota to api_any_tenant;
grant select on pillarbox.sagas, pillarbox.saga_log to api_any_tenant;
grant update (updated_at) on pillarbox.sagas to api_any_tenant;
grant insert (saga, what, step, action, attempt, detail) on pillarbox.saga_log to api_any_tenant;
grant select on pillarbox.audit to api_any_tenant;
grant insert (subject, kind, tenant_id, action, objects, count, before, after, reason) on pillarbox.audit to api_any_tenant;
grant select on pillarbox.migrations to api_any_tenant;
grant execute on function pillarbox.tenant, pillarbox.lease_of, pillarbox.in_flight, pillarbox.count_retries to api_any_tenant;
grant execute on function pillarbox.count_pending, pillarbox.members to api_any_tenant;
