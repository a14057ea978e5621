-- Ends rows without attempts left: pending ones, and those whose lease expired a while ago. 500 of a kind at a time.
-- ?1 the default limit of attempts   ?2 how long after the end of a lease, such as '-30.000 seconds'
-- ?3 namespaces as a JSON array, or null for all   ?4 the reason if a row has none of its own
-- Index: outbox_events_leased, outbox_events_tried, outbox_events_exhausted; then the primary key.
update outbox_events
set status = 'dead', locked_by = null, locked_until = null, claim_id = null,
    last_error = coalesce(last_error, ?4), updated_at = strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
where rowno in (
  select rowno from (
    select rowno from outbox_events
    where status = 'processing' and coalesce(locked_until, '') < strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', ?2)
      and max(attempts, 0) >= coalesce(max_attempts, ?1)
      and (?3 is null or namespace in (select value from json_each(?3)))
    order by coalesce(locked_until, '')
    limit 500
  )
  union all
  select rowno from (
    select rowno from outbox_events
    where status = 'pending' and attempts > 0 and max_attempts is null and attempts >= ?1
      and (?3 is null or namespace in (select value from json_each(?3)))
    order by attempts
    limit 500
  )
  union all
  select rowno from (
    select rowno from outbox_events
    where status = 'pending' and attempts >= max_attempts
      and (?3 is null or namespace in (select value from json_each(?3)))
    order by seq
    limit 500
  )
)
returning id, coalesce(parent_id, id) as event_id, namespace, destination,
  case when lane is not null then ordering_key end as ordering_key, attempts, last_error
