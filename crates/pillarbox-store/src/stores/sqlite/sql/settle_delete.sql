-- Deletes unrouted rows that are still held under their claim, and returns them.
-- ?1 worker   ?2 a JSON array of {id, claim}
-- Index: the one on id.
delete from outbox_events
where rowno in (
  select e.rowno from json_each(?2) as g
  cross join outbox_events as e on e.id = g.value ->> 'id'
  where e.claim_id = g.value ->> 'claim' and e.locked_by = ?1 and e.status = 'processing'
)
returning id
