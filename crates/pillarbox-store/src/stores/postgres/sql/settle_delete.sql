-- Deletes unrouted rows that are still held under their claim. Returns the others.
-- $1 worker   $2 ids   $3 claim ids   $4 finished claims
-- /*finished*/ is finished.sql.
-- Locks and index as in settle_delivered.sql, and written the same way for the same reason.
with given as materialized (
  select * from unnest($2::uuid[], $3::uuid[]) as g (id, claim_id)
), gone as (
  delete from pillarbox.outbox_events e
  using given g
  where e.id = any(array(select id from given)) and e.id = g.id and e.claim_id = g.claim_id
    and e.locked_by = $1 and e.status || '' = 'processing'
  returning e.id
/*finished*/
)
select g.id from given g where not exists (select from gone where gone.id = g.id)
