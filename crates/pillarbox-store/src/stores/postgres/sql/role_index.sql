-- For quotas of roles only: unfinished rows by the role that enqueued them, for their count.
create index concurrently if not exists outbox_events_by_role on pillarbox.outbox_events (enqueued_by)
where open < 2 and enqueued_by is not null
