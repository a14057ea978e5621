-- Writes the destinations of rows, and releases those that must wait.
-- ?1 a JSON array of {row, destination, max_attempts, waits}
-- Index: the one on id.
with given as materialized (
  select value ->> 'row' as id, value ->> 'destination' as destination, value ->> 'max_attempts' as max_attempts,
    value ->> 'waits' as waits
  from json_each(?1)
)
update outbox_events
set destination = g.destination, max_attempts = g.max_attempts,
    status = iif(g.waits, 'pending', status), attempts = iif(g.waits, max(attempts - 1, 0), attempts),
    locked_by = iif(g.waits, null, locked_by), locked_until = iif(g.waits, null, locked_until),
    claim_id = iif(g.waits, null, claim_id), updated_at = strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
from given as g
where outbox_events.id = g.id
