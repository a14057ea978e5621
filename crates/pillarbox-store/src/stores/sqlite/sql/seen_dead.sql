-- Dead rows in the order of insertion.
-- ?1 after this seq   ?2 namespaces as a JSON array, or null for all   ?3 how many
-- Index: outbox_events_dead.
select coalesce(parent_id, id) as event, null as at, seq as number,
  ?2 is null or namespace in (select value from json_each(?2)) as is_ours,
  coalesce(octet_length(body), octet_length(payload)) as size
from outbox_events
where status = 'dead' and seq > ?1
order by seq
limit ?3
