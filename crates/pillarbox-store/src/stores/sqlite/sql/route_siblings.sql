-- Inserts siblings: a copy of the row with its own destination, in the same claim or released.
-- ?1 a JSON array of {row, id, destination, max_attempts, waits}
-- Index: the one on id.
insert into outbox_events (
  id, seq, parent_id, /*event_columns*/ unordered, payload, body, destination, status, attempts, max_attempts,
  next_attempt_at, locked_by, locked_until, claim_id, last_error, created_at
)
select g.value ->> 'id', e.seq, coalesce(e.parent_id, e.id), /*e.event_columns*/ e.unordered, e.payload, e.body,
  g.value ->> 'destination',
  iif(g.value ->> 'waits', 'pending', e.status), iif(g.value ->> 'waits', max(e.attempts - 1, 0), e.attempts),
  g.value ->> 'max_attempts', e.next_attempt_at, iif(g.value ->> 'waits', null, e.locked_by),
  iif(g.value ->> 'waits', null, e.locked_until), iif(g.value ->> 'waits', null, e.claim_id), e.last_error,
  e.created_at
from json_each(?1) as g
cross join outbox_events as e on e.id = g.value ->> 'row'
order by g.key
