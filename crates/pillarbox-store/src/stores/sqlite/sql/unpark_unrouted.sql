-- Makes unrouted rows due now, without a destination.
-- ?1 ids as a JSON array
-- Index: the one on id.
update outbox_events
set destination = null, next_attempt_at = strftime('%Y-%m-%dT%H:%M:%f000Z', 'now'),
    updated_at = strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
where id in (select value from json_each(?1)) and status = 'pending' and destination = 'unrouted'
returning id
