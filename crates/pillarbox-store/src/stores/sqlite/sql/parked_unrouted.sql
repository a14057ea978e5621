-- Unrouted rows, in the order of insertion.
-- ?1 after which seq   ?2 namespaces as a JSON array, or null for all   ?3 how many
-- Index: outbox_events_unrouted.
select id, parent_id, seq, /*event_columns*/ dedupe_key, destination
from outbox_events
where status = 'pending' and destination = 'unrouted' and seq > ?1
  and (?2 is null or namespace in (select value from json_each(?2)))
order by seq
limit ?3
