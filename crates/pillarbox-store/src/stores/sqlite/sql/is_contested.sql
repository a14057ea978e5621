-- Is there an unfinished row with a key and a destination, of this key or another?
-- Index: outbox_events_keyed.
select exists (
  select 1 from outbox_events
  where lane = 0 and status in ('pending', 'processing', 'dead') and seq is not null and coalesce(destination, '') > ''
)
