-- Writes events in the caller's transaction. Those whose dedupe key was there before do not come back.
-- /*rows*/ is one list of values per event, in the order of the columns; the last is when it is due.
insert into outbox_events (
  /*event_columns*/ dedupe_key, id, payload, body, destination, next_attempt_at
) values /*rows*/
on conflict (namespace, topic, dedupe_key) where dedupe_key is not null do nothing
returning id
