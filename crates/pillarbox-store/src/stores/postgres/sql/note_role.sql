-- For quotas of roles only: writes down who enqueues an event. Siblings have the role of the event.
-- Locks: the table, against writers, for a moment.
create trigger note_role before insert on pillarbox.outbox_events
for each row when (new.enqueued_by is null and new.parent_id is null and new.adopted_table is null)
execute function pillarbox.note_role()
