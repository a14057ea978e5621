-- Deletes old marks.
-- ?1 consumer, ?2 how old, as '-60 seconds', ?3 how many at most
-- Index: pillarbox_inbox_old.
delete from pillarbox_inbox
where consumer = ?1 and event_id in (
  select event_id from pillarbox_inbox
  where consumer = ?1 and handled_at < strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', ?2)
  order by handled_at limit ?3)
