-- Keys of one backlog whose first unfinished row can be claimed, in order.
-- ?1 destination, '' for none yet   ?2 namespace   ?3 after which key   ?4 up to which key, or null
-- ?5 the default limit of attempts   ?6 how many keys   ?7 how many steps
-- Index: outbox_events_keyed. Steps from key to key, with two or three seeks each, however many rows a key has.
--
-- The key of the last step is returned even if it cannot be claimed. The next claim continues there. The limit ends the
-- steps, because nothing sorts them.
with recursive step (key, number) as (
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
  where step.key is not null and step.number < ?7 and (?4 is null or step.key < ?4)
)
select step.key, step.number, (
  select head.status = 'pending'
    and (head.next_attempt_at <= head.created_at
      or head.next_attempt_at <= strftime('%Y-%m-%dT%H:%M:%f000Z', 'now'))
    and max(head.attempts, 0) < coalesce(head.max_attempts, ?5)
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
where step.key is not null and (?4 is null or step.key <= ?4) and (free or step.number = ?7)
limit ?6
