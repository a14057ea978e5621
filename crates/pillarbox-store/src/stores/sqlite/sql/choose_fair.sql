-- Like choose_free.sql, with a fair share for every tenant: one row of each, then the second of each.
-- ?1 destination, '' for none yet   ?2 namespace   ?3 how many   ?4 the floor
-- ?5 the default limit of attempts   ?6 for how many rows that have waited room is kept
-- ?7 the window: how many waiting rows and how many fresh rows to read
-- Index: outbox_events_waiting, outbox_events_fresh.
--
-- Lots decide the order of the tenants, so that each gets its turn although claims are small.
-- A tenant whose rows come after a full window of others waits for them. An index by tenant would slow every insert down.
with waited as materialized (
  select rowno, seq, tenant_id, random() as lot, 1 as class, next_attempt_at as at,
    iif(body is null, octet_length(payload), octet_length(body)) as size
  from outbox_events
  where status = 'pending' and next_attempt_at > created_at and seq is not null
    and coalesce(destination, '') = ?1 and namespace = ?2 and lane is null
    and next_attempt_at <= strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
    and max(attempts, 0) < coalesce(max_attempts, ?5)
  order by next_attempt_at, seq
  limit ?7
), fresh as materialized (
  select rowno, seq, tenant_id, random() as lot, 2 as class, '' as at,
    iif(body is null, octet_length(payload), octet_length(body)) as size
  from outbox_events
  where status = 'pending' and next_attempt_at <= created_at and seq is not null
    and coalesce(destination, '') = ?1 and namespace = ?2 and lane is null and seq >= ?4
    and max(attempts, 0) < coalesce(max_attempts, ?5)
  order by seq
  limit ?7
), drawn as materialized (
  select rowno, size, class, at, seq, row_number() over tenant as turn, first_value(lot) over tenant as lot
  from (select * from waited union all select * from fresh)
  window tenant as (partition by class, tenant_id order by at, seq)
), ranked as materialized (
  select rowno, size, class, row_number() over (partition by class order by turn, lot, at, seq) as rank from drawn
)
select rowno, size
from ranked
order by case when class = 2 then 2 when rank <= ?6 then 1 else 3 end, rank
limit ?3
