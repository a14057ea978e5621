-- Is there a row for a sweep? An idle worker runs it: one query by the simple protocol.
-- /*limit*/ is the default limit of attempts.
-- Index: leases_until, outbox_events_own_leases, outbox_events_spent; each ordered by its own key.
select
  coalesce((select until < now() from pillarbox.leases order by until limit 1), false)
  or coalesce((select own_until < now() from pillarbox.outbox_events
    where own_until is not null order by own_until limit 1), false)
  as expired,
  coalesce((select spent >= /*limit*/25 from pillarbox.outbox_events
    where spent is not null order by spent desc limit 1), false)
  as exhausted
