-- Is any row with a key on its way to a destination, be it of this key or not?
-- Index: outbox_events_keyed.
select exists (
  select 1 from outbox_events
  where lane = 0 and status in ('pending', 'processing', 'dead') and seq is not null and coalesce(destination, '') > ''
)
