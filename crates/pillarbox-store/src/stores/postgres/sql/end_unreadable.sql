-- Makes rows dead that cannot be read, without reading them.
-- $1 ids   $2 reasons
-- Locks: the rows. A row locked by others is skipped, and so is one that is in flight.
--
-- A row that was claimed a moment ago is read again, but its lease is not: the statement does not see it. `locked_until` tells.
with chosen as materialized (
  select id from pillarbox.outbox_events e
  where id = any($1)
    and (status || '' = 'pending' or status || '' = 'processing' and case
      when own_until is not null then own_until < now()
      else coalesce(locked_until, '-infinity') < now()
        and not exists (select from pillarbox.leases l where l.claim_id = e.claim_id and l.until >= now())
    end)
  for update skip locked
)
update pillarbox.outbox_events e
set status = 'dead', updated_at = now(), locked_by = null, locked_until = null, claim_id = null, last_error = g.reason
from unnest($1::uuid[], $2::text[]) as g (id, reason)
where e.id = any(array(select id from chosen)) and e.id = g.id
returning e.id
