-- Makes dead and pending rows due now, with all their attempts.
-- ?1 ids as a JSON array   /*tenant*/ is the tenant
-- Index: the one on id.
update outbox_events
set status = 'pending', attempts = 0, locked_by = null, locked_until = null, claim_id = null,
    next_attempt_at = strftime('%Y-%m-%dT%H:%M:%f000Z', 'now'),
    updated_at = strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
where id in (select value from json_each(?1)) and status in ('pending', 'dead') /*tenant*/
returning id
