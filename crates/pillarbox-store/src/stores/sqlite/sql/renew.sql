-- Renews the leases of rows that are still held under their claim, and returns them.
-- ?1 worker   ?2 a JSON array of [id, claim id]   ?3 lease, such as '+30.000 seconds'
-- Index: the one on id.
with given as materialized (
  select value ->> 0 as id, value ->> 1 as claim from json_each(?2)
)
update outbox_events
set locked_until = strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', ?3),
    updated_at = strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
from given as g
where outbox_events.id = g.id and claim_id = g.claim and locked_by = ?1 and status = 'processing'
returning id
