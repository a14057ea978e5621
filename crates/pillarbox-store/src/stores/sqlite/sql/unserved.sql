-- The keys of a backlog whose first unfinished row is pending and was never tried.
-- ?1 destination, '' for none   ?2 namespace   ?3 how many   ?4 up to how many rows behind are counted
-- Index: outbox_events_keyed. Steps from key to key, at most twice as often as keys are asked for.
with recursive step (key, number) as (
  select (
    select ordering_key from outbox_events
    where lane = 0 and status in ('pending', 'processing', 'dead') and seq is not null
      and coalesce(destination, '') = ?1 and namespace = ?2
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
  where step.key is not null and step.number < 2 * ?3
)
select e.namespace, e.destination, e.ordering_key, e.id, e.seq, e.status, e.attempts, e.last_error,
  max((julianday('now') - julianday(e.created_at)) * 86400.0, 0.0) as age, e.next_attempt_at, (
    select count(*) from (
      select 1 from outbox_events as other
      where other.lane = 0 and other.status in ('pending', 'processing', 'dead') and other.seq is not null
        and coalesce(other.destination, '') = ?1 and other.namespace = ?2 and other.ordering_key = step.key
        and other.seq > e.seq
      limit ?4
    )
  ) as behind
from step
cross join outbox_events as e on e.rowno = (
  select rowno from outbox_events as head
  where head.lane = 0 and head.status in ('pending', 'processing', 'dead') and head.seq is not null
    and coalesce(head.destination, '') = ?1 and head.namespace = ?2 and head.ordering_key = step.key
  order by head.seq limit 1
)
where e.status = 'pending' and e.attempts <= 0
limit ?3
