-- Skips dead and pending rows: they are dead, and no longer block their keys.
-- /*tenant*/ is the tenant   ?1 ids as a JSON array   ?2 the reason if a pending row has none of its own
-- Index: the one on id.
update outbox_events
set status = 'dead', unordered = 1, locked_by = null, locked_until = null, claim_id = null,
    last_error = iif(status = 'pending', coalesce(last_error, ?2), last_error),
    updated_at = strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
where id in (select value from json_each(?1)) and status in ('pending', 'dead') and lane = 0 /*tenant*/
returning id
