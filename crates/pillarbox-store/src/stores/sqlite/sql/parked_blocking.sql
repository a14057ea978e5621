-- Dead rows that block their key, in the order of insertion.
-- ?1 after which seq   ?2 namespaces as a JSON array, or null for all   ?3 how many
-- Index: outbox_events_blocking.
select id, parent_id, seq, /*event_columns*/ dedupe_key, destination
from outbox_events indexed by outbox_events_blocking
where status = 'dead' and lane = 0 and seq > ?1
  and (?2 is null or namespace in (select value from json_each(?2)))
order by seq
limit ?3
