-- The keys of a backlog whose first unfinished row is pending and was never tried.
-- ?1 destination, '' for none   ?2 namespace   ?3 after which key   ?4 up to which key, or null   ?5 how many steps
-- ?6 how many keys   ?7 up to how many rows behind are counted   /*tenant e*/ is the tenant
-- Index: outbox_events_keyed. /*key_steps*/ is key_steps.sql.
with recursive
/*key_steps*/
select e.namespace, e.destination, e.ordering_key, e.id, e.seq, e.status, e.attempts, e.last_error,
  max((julianday('now') - julianday(e.created_at)) * 86400.0, 0.0) as age, e.next_attempt_at, (
    select count(*) from (
      select 1 from outbox_events as other
      where other.lane = 0 and other.status in ('pending', 'processing', 'dead') and other.seq is not null
        and coalesce(other.destination, '') = ?1 and other.namespace = ?2 and other.ordering_key = step.key
        and other.seq > e.seq /*tenant other*/
      limit ?7
    )
  ) as behind
from step
cross join outbox_events as e on e.rowno = (
  select rowno from outbox_events as head
  where head.lane = 0 and head.status in ('pending', 'processing', 'dead') and head.seq is not null
    and coalesce(head.destination, '') = ?1 and head.namespace = ?2 and head.ordering_key = step.key
  order by head.seq limit 1
)
where e.status = 'pending' and e.attempts <= 0 /*tenant e*/
limit ?6
