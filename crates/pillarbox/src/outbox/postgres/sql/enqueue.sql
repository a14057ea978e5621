-- Writes one event in the caller's transaction. No row comes back if its dedupe key was there before.
-- $1 id   $2 payload   $3 body   $4 destination   $5 not before this   $6 … the event's columns, then its dedupe key
-- Locks: the new row, and its dedupe key until the transaction ends.
insert into pillarbox.outbox_events (
  /*event_columns*/ dedupe_key, id, payload, body, destination, next_attempt_at
) values (
  /*event_parameters*/ $1, $2::text::jsonb, $3, $4, greatest($5::text::timestamptz, now())
)
on conflict (namespace, topic, dedupe_key) where dedupe_key is not null do nothing
returning seq as place, id::text as id
