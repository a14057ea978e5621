-- Writes all other verdicts to rows that are still held under their claim. Returns the others.
-- $1 worker   $2 ids   $3 claim ids   $4 finished claims
-- $5 verdicts: retry, release, suspect, dead, or delivered and unordered
-- $6 waits    $7 reasons   $8 destinations   $9 attempts in all   $10 does the row leave its lane?
-- /*finished*/ is finished.sql.
-- Locks and index as in settle_delivered.sql, and written the same way for the same reason.
--
-- A row with a key is claimed by its key from here on.
--
-- A suspect stays in processing with a lease of its own that no worker holds. So it cannot be settled, and is claimed like a row of a
-- dead worker when the lease expires.
with given as materialized (
  select * from unnest(
    $2::uuid[], $3::uuid[], $5::text[], $6::interval[], $7::text[], $8::text[], $9::int[], $10::boolean[]
  ) as g (id, claim_id, verdict, wait, reason, destination, max_attempts, unordered)
), settled as (
  update pillarbox.outbox_events e
  set status = case g.verdict when 'dead' then 'dead' when 'suspect' then 'processing'
        when 'delivered' then 'delivered' else 'pending' end,
      attempts = case g.verdict when 'release' then greatest(e.attempts - 1, 0) else e.attempts end,
      next_attempt_at = case when g.verdict in ('retry', 'release') then now() + g.wait else e.next_attempt_at end,
      locked_by = case g.verdict when 'suspect' then '00000000-0000-0000-0000-000000000000'::uuid end,
      claim_id = case g.verdict when 'suspect' then '00000000-0000-0000-0000-000000000000'::uuid end,
      locked_until = case g.verdict when 'suspect' then now() + g.wait end,
      own_lease = g.verdict = 'suspect',
      by_key = e.lane is not null,
      last_error = coalesce(g.reason, e.last_error),
      destination = coalesce(g.destination, e.destination),
      max_attempts = coalesce(g.max_attempts, e.max_attempts),
      unordered = e.unordered or (g.unordered and e.ordering_key is not null),
      delivered_at = case g.verdict when 'delivered' then now() else e.delivered_at end,
      updated_at = now()
  from given g
  where e.id = any(array(select id from given)) and e.id = g.id and e.claim_id = g.claim_id
    and e.locked_by = $1 and e.status || '' = 'processing'
  returning e.id
/*finished*/
)
select g.id from given g where not exists (select from settled s where s.id = g.id)
