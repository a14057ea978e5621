-- Is there a row that wants to be taken alone?
-- ?1 attempts of a row that does not say   ?2 namespaces as a JSON array, or null for all
-- Index: outbox_events_leased.
select exists (
  select 1 from outbox_events
  where status = 'processing' and coalesce(locked_until, '') < strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
    and attempts >= 2 and attempts < coalesce(max_attempts, ?1)
    and (?2 is null or namespace in (select value from json_each(?2)))
)
