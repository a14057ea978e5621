-- Is there anything that a claim could take? What an idle worker asks.
-- ?1 namespaces as a JSON array, or null for all
-- Index: outbox_events_fresh, outbox_events_waiting, outbox_events_leased.
select exists (
  select 1 from outbox_events
  where status = 'pending' and next_attempt_at <= created_at and seq is not null
    and (?1 is null or namespace in (select value from json_each(?1)))
) or exists (
  select 1 from outbox_events
  where status = 'pending' and next_attempt_at > created_at
    and next_attempt_at <= strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
    and (?1 is null or namespace in (select value from json_each(?1)))
) or exists (
  select 1 from outbox_events
  where status = 'processing' and coalesce(locked_until, '') < strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
    and (?1 is null or namespace in (select value from json_each(?1)))
)
