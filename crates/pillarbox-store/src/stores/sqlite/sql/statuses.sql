-- The status of rows, before an operator changes them.
-- ?1 ids as a JSON array   /*tenant*/ is the tenant
-- Index: the one on id.
select id, status from outbox_events where id in (select value from json_each(?1)) /*tenant*/
