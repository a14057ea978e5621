-- Keys of one backlog whose first unfinished row can be claimed, in order.
-- ?1 destination, '' for none yet   ?2 namespace   ?3 after which key   ?4 up to which key, or null   ?5 how many steps
-- ?6 the default limit of attempts   ?7 how many keys
-- Index: outbox_events_keyed. /*key_steps*/ is key_steps.sql. A step needs two or three seeks.
--
-- The key of the last step is returned even if it cannot be claimed. The next claim continues there. The limit ends the
-- steps, because nothing sorts them.
with recursive
/*key_steps*/
select step.key, step.number, (
  select head.status = 'pending'
    and (head.next_attempt_at <= head.created_at
      or head.next_attempt_at <= strftime('%Y-%m-%dT%H:%M:%f000Z', 'now'))
    and max(head.attempts, 0) < coalesce(head.max_attempts, ?6)
    and not (?1 <> '' and exists (
      -- An earlier row of the key without a destination.
      select 1 from outbox_events as other
      where other.lane = 0 and other.status in ('pending', 'processing', 'dead') and other.seq is not null
        and coalesce(other.destination, '') = '' and other.namespace = ?2 and other.ordering_key = step.key
        and other.seq < head.seq
    ))
  from outbox_events as head
  where head.lane = 0 and head.status in ('pending', 'processing', 'dead') and head.seq is not null
    and coalesce(head.destination, '') = ?1 and head.namespace = ?2 and head.ordering_key = step.key
  order by head.seq limit 1
) as free
from step
where step.key is not null and (?4 is null or step.key <= ?4) and (free or step.number = ?5)
limit ?7
