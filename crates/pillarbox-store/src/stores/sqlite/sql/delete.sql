-- Deletes rows that are not in flight.
-- ?1 ids as a JSON array   /*tenant*/ is the tenant
-- Index: the one on id.
delete from outbox_events
where id in (select value from json_each(?1))
  and not (status = 'processing' and coalesce(locked_until, '') >= strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')) /*tenant*/
returning id
