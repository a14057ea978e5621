-- Delivered rows of one namespace that are old enough, the oldest first.
-- ?1 namespace   ?2 how long they are kept, such as '-604800.000 seconds'   ?3 and ?4 after this time and row   ?5 how many
-- Index: outbox_events_delivered.
select coalesce(parent_id, id) as event, delivered_at as at, rowno as number,
  coalesce(octet_length(body), octet_length(payload)) as size
from outbox_events
where status = 'delivered' and namespace = ?1 and delivered_at >= ?3
  and delivered_at < strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', ?2) and (delivered_at > ?3 or rowno > ?4)
order by delivered_at, rowno
limit ?5
