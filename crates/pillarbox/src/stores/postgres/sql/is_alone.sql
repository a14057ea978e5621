-- Is there a row that wants to be taken alone?
-- $1 attempts of a row that does not say   $2 namespaces, or null for all
-- Index: outbox_events_leased.
select exists (
  select from pillarbox.outbox_events
  where status = 'processing' and coalesce(locked_until, '-infinity') < now()
    and attempts >= 2 and attempts < coalesce(max_attempts, $1)
    and ($2::text[] is null or namespace = any($2))
)
