-- Rows whose lease expired and that this worker may claim, and how many rows of the key must be claimed before each.
-- ?1 the default limit of attempts   ?2 namespaces as a JSON array, or null for all
-- ?3 unavailable destinations as a JSON array   ?4 worker   ?5 how many   ?6 how many to read
-- ?7 those with two attempts or more (1), or those with fewer (0)
-- Index: outbox_events_leased; outbox_events_keyed for the rows before.
--
-- Reads the leases that expired first, so that a large number of expired rows is never sorted as a whole.
select e.rowno, e.seq, coalesce(e.destination, '') as destination, e.namespace,
  iif(e.lane = 0, e.ordering_key, null) as key, iif(e.body is null, octet_length(e.payload), octet_length(e.body)) as size,
  candidate.earlier
from (
  select rowno, iif(lane = 0, (
    select count(*) from (
      select 1 from outbox_events as other
      where other.lane = 0 and other.status in ('pending', 'processing', 'dead') and other.seq is not null
        and coalesce(other.destination, '') in ('', coalesce(leased.destination, ''))
        and other.namespace = leased.namespace and other.ordering_key = leased.ordering_key
        and other.seq < leased.seq
      limit ?5
    )
  ), 0) as earlier
  from outbox_events as leased
  where status = 'processing' and coalesce(locked_until, '') < strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
    and (attempts >= 2) = ?7 and max(attempts, 0) < coalesce(max_attempts, ?1)
    and (?2 is null or namespace in (select value from json_each(?2)))
    and (destination is null or destination not in (select value from json_each(?3)))
    and (lane is null or (namespace, coalesce(destination, '')) in (
      select namespace, destination from pillarbox_lanes
      where owner = ?4 and not leaving and leased_until >= strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
    ))
    and earlier < ?5
  order by coalesce(locked_until, '')
  limit ?6
) as candidate
cross join outbox_events as e on e.rowno = candidate.rowno
order by e.seq, e.rowno
