-- Which of these ids are there already?
-- ?1 ids as a JSON array
-- Index: the one on id.
select id from outbox_events where id in (select value from json_each(?1))
