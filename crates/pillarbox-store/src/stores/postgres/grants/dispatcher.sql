grant usage on schema pillarbox to dispatcher;
grant select, insert, update on pillarbox.outbox_events to dispatcher;
grant select, insert, update, delete on pillarbox.leases, pillarbox.lane_ranges, pillarbox.workers to dispatcher;
grant select, insert, update, delete on pillarbox.adopted, pillarbox.importers, pillarbox.import_failures to dispatcher;
grant select, insert on pillarbox.destinations to dispatcher;
grant insert (subject, kind, tenant_id, action, objects, count, before, after, reason) on pillarbox.audit to dispatcher;
grant select on sequence pillarbox.outbox_seq to dispatcher;
grant execute on procedure pillarbox.wait to dispatcher;
grant select on pillarbox.migrations to dispatcher;
