-- The first rows of these keys, and which of them can be claimed. A run ends before the first that cannot.
-- ?1 destination, '' for none yet   ?2 namespace   ?3 keys as a JSON array   ?4 how many rows of each
-- ?5 the default limit of attempts
-- Index: outbox_events_keyed.
select k.key as place, e.rowno, iif(e.body is null, octet_length(e.payload), octet_length(e.body)) as size,
  e.status = 'pending'
    and (e.next_attempt_at <= e.created_at
      or e.next_attempt_at <= strftime('%Y-%m-%dT%H:%M:%f000Z', 'now'))
    and max(e.attempts, 0) < coalesce(e.max_attempts, ?5)
    and not (?1 <> '' and exists (
      -- An earlier row of the key without a destination.
      select 1 from outbox_events as other
      where other.lane = 0 and other.status in ('pending', 'processing', 'dead') and other.seq is not null
        and coalesce(other.destination, '') = '' and other.namespace = ?2 and other.ordering_key = e.ordering_key
        and other.seq < e.seq
    )) as free
from json_each(?3) as k
cross join outbox_events as e on e.rowno in (
  select run.rowno from outbox_events as run
  where run.lane = 0 and run.status in ('pending', 'processing', 'dead') and run.seq is not null
    and coalesce(run.destination, '') = ?1 and run.namespace = ?2 and run.ordering_key = k.value
  order by run.seq limit ?4
)
order by k.key, e.seq
