-- Deletes old marks of all consumers, the oldest first.
-- ?1 how long they are kept   ?2 how many
-- Index: pillarbox_inbox_oldest.
delete from pillarbox_inbox
where (consumer, event_id) in (
  select consumer, event_id from pillarbox_inbox
  where handled_at < strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', ?1)
  order by handled_at
  limit ?2
)
