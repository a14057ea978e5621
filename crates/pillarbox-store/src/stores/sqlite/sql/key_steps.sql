-- Steps from key to key of one backlog. A part of choose_keys.sql and unserved.sql, in place of /*key_steps*/.
-- ?1 destination, '' for none yet   ?2 namespace   ?3 after which key   ?4 up to which key, or null   ?5 how many steps
-- Index: outbox_events_keyed. A step costs one seek, however many rows a key has.
step (key, number) as (
  select (
    select ordering_key from outbox_events
    where lane = 0 and status in ('pending', 'processing', 'dead') and seq is not null
      and coalesce(destination, '') = ?1 and namespace = ?2 and ordering_key > ?3
    order by ordering_key limit 1
  ), 1
  union all
  select (
    select ordering_key from outbox_events
    where lane = 0 and status in ('pending', 'processing', 'dead') and seq is not null
      and coalesce(destination, '') = ?1 and namespace = ?2 and ordering_key > step.key
    order by ordering_key limit 1
  ), number + 1
  from step
  where step.key is not null and step.number < ?5 and (?4 is null or step.key < ?4)
)
