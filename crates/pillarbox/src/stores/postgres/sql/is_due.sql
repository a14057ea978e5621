-- Is there anything that a claim could take? What an idle worker asks, by the simple protocol: one query.
-- /*scope*/ is nothing, or `and namespace in (…)`.
-- Index: outbox_events_fresh, outbox_events_waiting, outbox_events_leased; each ordered by its own key,
-- so that the plan does not depend on what the statistics believe.
select coalesce(
  (select true from pillarbox.outbox_events
   where status = 'pending' and next_attempt_at <= created_at /*scope*/
   order by seq limit 1),
  (select true from pillarbox.outbox_events
   where status = 'pending' and next_attempt_at > created_at and next_attempt_at <= now() /*scope*/
   order by next_attempt_at, seq limit 1),
  (select true from pillarbox.outbox_events
   where status = 'processing' and coalesce(locked_until, '-infinity') < now() /*scope*/
   order by coalesce(locked_until, '-infinity') limit 1),
  false) as due
