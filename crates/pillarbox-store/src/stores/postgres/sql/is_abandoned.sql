-- Is there a row for a sweep? An idle worker runs it: one query by the simple protocol.
-- /*limit*/ is the default limit of attempts.
-- Index: outbox_events_leased, outbox_events_exhausted, outbox_events_tried; each ordered by its own key.
select
  coalesce((select coalesce(locked_until, '-infinity') < now() from pillarbox.outbox_events
    where status = 'processing' order by coalesce(locked_until, '-infinity') limit 1), false) as expired,
  coalesce((select true from pillarbox.outbox_events
    where status = 'pending' and attempts >= max_attempts order by seq limit 1), false)
  or coalesce((select attempts >= /*limit*/25 from pillarbox.outbox_events
    where status = 'pending' and attempts > 0 and max_attempts is null order by attempts desc limit 1), false)
  as exhausted
