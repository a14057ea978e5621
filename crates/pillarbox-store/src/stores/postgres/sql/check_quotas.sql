-- For quotas only: refuses what a role or a tenant enqueues that is over its quota.
-- Locks: the table, against writers, for a moment.
create trigger check_quotas after insert on pillarbox.outbox_events referencing new table as enqueued
for each statement execute function pillarbox.check_quotas()
