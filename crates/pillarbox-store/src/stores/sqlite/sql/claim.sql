-- Claims the chosen rows for one worker: one more attempt, and the lease.
-- ?1 worker   ?2 claim id   ?3 lease, such as '+30.000 seconds'   ?4 row numbers as a JSON array
-- Index: the primary key; the one on id for the first row of a sibling's family, which has the dedupe key.
update outbox_events
set status = 'processing', attempts = max(attempts, 0) + 1, locked_by = ?1, claim_id = ?2,
    locked_until = strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', ?3),
    updated_at = strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
where rowno in (select value from json_each(?4))
returning id, parent_id, seq, /*event_columns*/ iif(parent_id is null, dedupe_key, (
    select parent.dedupe_key from outbox_events as parent where parent.id = outbox_events.parent_id
  )) as dedupe_key,
  payload, body, destination, lane, attempts, max_attempts, created_at
