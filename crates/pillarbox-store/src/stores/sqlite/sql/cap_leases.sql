-- Shortens leases that are longer than any lease can be, because the clock was set back. They last one lease more.
-- ?1 the lease from now, such as '+30.000 seconds'   ?2 namespaces as a JSON array, or null for all
-- Index: outbox_events_leased.
update outbox_events
set locked_until = strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', ?1),
    updated_at = strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
where status = 'processing'
  and coalesce(locked_until, '') > strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', '+25 hours')
  and (?2 is null or namespace in (select value from json_each(?2)))
