-- Chooses due rows without a lane from one backlog, in the order in which they are claimed.
-- ?1 destination, '' for none yet   ?2 namespace   ?3 how many   ?4 the floor
-- ?5 the default limit of attempts
-- Index: outbox_events_waiting, outbox_events_fresh.
--
-- Rows that have waited get at most half of the room, so that neither they nor fresh rows starve. A fresh row is due since
-- it was inserted. It is found without a clock, so that a clock that was set back delays no new row.
with waited as materialized (
  select rowno, seq, 1 as turn, next_attempt_at as at,
    iif(body is null, octet_length(payload), octet_length(body)) as size
  from outbox_events
  where status = 'pending' and next_attempt_at > created_at and seq is not null
    and coalesce(destination, '') = ?1 and namespace = ?2 and lane is null
    and next_attempt_at <= strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
    and max(attempts, 0) < coalesce(max_attempts, ?5)
  order by next_attempt_at, seq
  limit (?3 + 1) / 2
), fresh as materialized (
  select rowno, seq, 2 as turn, '' as at,
    iif(body is null, octet_length(payload), octet_length(body)) as size
  from outbox_events
  where status = 'pending' and next_attempt_at <= created_at and seq is not null
    and coalesce(destination, '') = ?1 and namespace = ?2 and lane is null and seq >= ?4
    and max(attempts, 0) < coalesce(max_attempts, ?5)
  order by seq
  limit ?3 - (select count(*) from waited)
)
select rowno, size
from (select * from waited union all select * from fresh)
order by turn, at, seq
