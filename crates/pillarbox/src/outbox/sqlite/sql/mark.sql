-- Marks events as handled. Returns those that were not.
-- ?1 consumer, ?2 ids as a JSON array
insert into pillarbox_inbox (consumer, event_id)
select ?1, value from json_each(?2) where true
on conflict do nothing
returning event_id
