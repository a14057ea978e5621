-- Chooses due rows without a lane from one backlog, in the order in which they are claimed.
-- ?1 destination, '' for none yet   ?2 namespace   ?3 how many   ?4 the floor
-- ?5 the default limit of attempts   ?6 for how many rows that have waited room is kept
-- Index: outbox_events_waiting, outbox_events_fresh.
--
-- Rows that have waited get half of the room, and what fresh rows leave. So neither they nor fresh rows starve. A fresh row
-- is due since it was inserted. It is found without a clock, so that a clock that was set back delays no new row.
with waited as materialized (
  select rowno, seq, next_attempt_at as at
  from outbox_events
  where status = 'pending' and next_attempt_at > created_at and seq is not null
    and coalesce(destination, '') = ?1 and namespace = ?2 and lane is null
    and next_attempt_at <= strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
    and max(attempts, 0) < coalesce(max_attempts, ?5)
  order by next_attempt_at, seq
  limit ?3
), fresh as materialized (
  select rowno, seq
  from outbox_events
  where status = 'pending' and next_attempt_at <= created_at and seq is not null
    and coalesce(destination, '') = ?1 and namespace = ?2 and lane is null and seq >= ?4
    and max(attempts, 0) < coalesce(max_attempts, ?5)
  order by seq
  limit ?3 - min((select count(*) from waited), ?6)
), chosen as materialized (
  select rowno, iif(place <= ?6, 1, 3) as turn, place
  from (select rowno, row_number() over (order by at, seq) as place from waited)
  union all
  select rowno, 2, seq from fresh
  order by 2, 3
  limit ?3
)
select e.rowno, iif(e.body is null, octet_length(e.payload), octet_length(e.body)) as size
from chosen
cross join outbox_events as e on e.rowno = chosen.rowno
order by chosen.turn, chosen.place
