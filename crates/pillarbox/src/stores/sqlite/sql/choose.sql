-- Chooses due rows for one claim, and a few rows whose first lease ran out, in the order they are taken.
-- ?1 how many due rows   ?2 how many whose lease ran out   ?3 attempts of a row that does not say
-- ?4 namespaces as a JSON array, or null for all
-- Index: outbox_events_leased, outbox_events_waiting, outbox_events_fresh.
--
-- Rows tried before get at most half of the room, so that neither they nor fresh rows starve. A fresh row
-- was due when it was written: no clock is asked, so that one that was put back delays nothing new.
with expired as materialized (
  select rowno, seq, 0 as turn, coalesce(locked_until, '') as at, octet_length(coalesce(body, payload)) as size
  from outbox_events
  where status = 'processing' and coalesce(locked_until, '') < strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
    and attempts < 2 and max(attempts, 0) < coalesce(max_attempts, ?3)
    and (?4 is null or namespace in (select value from json_each(?4)))
  order by coalesce(locked_until, ''), seq
  limit ?2
), waited as materialized (
  select rowno, seq, 1 as turn, next_attempt_at as at, octet_length(coalesce(body, payload)) as size
  from outbox_events
  where status = 'pending' and next_attempt_at > created_at
    and next_attempt_at <= strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
    and max(attempts, 0) < coalesce(max_attempts, ?3)
    and (?4 is null or namespace in (select value from json_each(?4)))
  order by next_attempt_at, seq
  limit (?1 + 1) / 2
), fresh as materialized (
  select rowno, seq, 2 as turn, '' as at, octet_length(coalesce(body, payload)) as size
  from outbox_events
  where status = 'pending' and next_attempt_at <= created_at and seq is not null
    and max(attempts, 0) < coalesce(max_attempts, ?3)
    and (?4 is null or namespace in (select value from json_each(?4)))
  order by seq
  limit ?1 - (select count(*) from waited)
)
select rowno, size, turn = 0 as recovered
from (select * from expired union all select * from waited union all select * from fresh)
order by turn, at, seq
