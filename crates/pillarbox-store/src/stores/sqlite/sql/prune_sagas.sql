-- Deletes sagas that ended long ago, the oldest first, and returns them.
-- ?1 how long they are kept   ?2 namespaces as a JSON array, or null for all   ?3 how many
-- Index: pillarbox_sagas_ended.
delete from pillarbox_sagas
where seq in (
  select seq from pillarbox_sagas
  where status in ('completed', 'compensated') and updated_at < strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', ?1)
    and (?2 is null or namespace in (select value from json_each(?2)))
  order by updated_at
  limit ?3
)
returning seq
