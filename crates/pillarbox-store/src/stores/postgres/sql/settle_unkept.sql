-- Deletes delivered rows that are still held under their claim and that nothing needs. Returns the others.
-- $1 worker   $2 ids   $3 claim ids   $4 finished claims
-- /*finished*/ is finished.sql.
-- Locks and index as in settle_delivered.sql, and written the same way for the same reason. Also outbox_events_siblings.
--
-- `in (…) is true` looks up each claim in a hash table. The planner expects one row to pass all conditions, so that it would
-- compare every row with every claim in a join.
--
-- A row stays that has a dedupe key, belongs to a family, or came from an adopted table. Its siblings were committed by its
-- own worker before, so that this statement sees them.
with given as materialized (
  select * from unnest($2::uuid[], $3::uuid[]) as g (id, claim_id)
), parent as materialized (
  select parent_id as id from pillarbox.outbox_events
  where parent_id = any(array(select id from given)) and parent_id is not null
), gone as (
  delete from pillarbox.outbox_events e
  where e.id = any(array(select id from given))
    and ((e.id, e.claim_id) in (select id, claim_id from given)) is true
    and e.locked_by = $1 and e.status || '' = 'processing'
    and e.dedupe_key is null and e.parent_id is null and e.adopted_table is null
    and e.id not in (select id from parent)
  returning e.id
/*finished*/
)
select g.id from given g where not exists (select from gone where gone.id = g.id)
