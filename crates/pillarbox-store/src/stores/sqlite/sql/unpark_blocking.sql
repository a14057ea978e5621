-- Takes dead rows out of their lanes, so that they no longer block their keys.
-- ?1 ids as a JSON array
-- Index: the one on id.
update outbox_events
set unordered = 1, updated_at = strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
where id in (select value from json_each(?1)) and status = 'dead' and lane = 0
returning id
