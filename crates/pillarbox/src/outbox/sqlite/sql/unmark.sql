-- Takes marks back.
-- ?1 consumer, ?2 ids as a JSON array
delete from pillarbox_inbox where consumer = ?1 and event_id in (select value from json_each(?2))
