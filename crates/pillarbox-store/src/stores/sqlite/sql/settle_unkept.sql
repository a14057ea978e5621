-- Deletes delivered rows that are still held under their claim and that nothing needs, and returns them.
-- ?1 worker   ?2 a JSON array of {id, claim}
-- Index: the one on id, outbox_events_family.
--
-- A row stays that has a dedupe key or belongs to a family.
delete from outbox_events
where rowno in (
  select e.rowno from json_each(?2) as g
  cross join outbox_events as e on e.id = g.value ->> 'id'
  where e.claim_id = g.value ->> 'claim' and e.locked_by = ?1 and e.status = 'processing'
    and e.dedupe_key is null and e.parent_id is null
    and not exists (select 1 from outbox_events as s where s.parent_id = e.id and s.parent_id is not null)
)
returning id
