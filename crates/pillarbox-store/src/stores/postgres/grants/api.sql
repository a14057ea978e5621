grant usage on schema pillarbox to api;
grant select, delete on pillarbox.outbox_events to api;
grant update (
  status, attempts, next_attempt_at, unordered, by_key, locked_by, locked_until, claim_id, last_error, updated_at
) on pillarbox.outbox_events to api;
grant select (event_id, adopted_table, tenant_id, ended, write_back_pending) on pillarbox.adopted to api;
grant update (ended, write_back_pending) on pillarbox.adopted to api;
grant select (name, paused_at, disabled) on pillarbox.destinations to api;
grant select (id, scope, started_at, alive_until, serves) on pillarbox.workers to api;
grant select on pillarbox.audit to api;
grant insert (subject, kind, tenant_id, action, objects, count, before, after, reason) on pillarbox.audit to api;
grant select on pillarbox.migrations to api;
grant execute on function pillarbox.tenant, pillarbox.lease_of, pillarbox.in_flight, pillarbox.count_retries to api;
