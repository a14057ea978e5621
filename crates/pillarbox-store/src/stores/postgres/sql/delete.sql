-- Deletes rows that are not in flight. Returns each with its event and its status.
-- $1 ids   $2 the tenant, or null for all
-- Locks: the rows, in the order of their ids; waits for a running claim.
--
-- After a wait for a claim the row is read again, but its lease is not: the statement does not see it. `locked_until` tells.
with chosen as materialized (
  select id from pillarbox.outbox_events e
  where id = any($1) and ($2::uuid is null or tenant_id = $2) and (status <> 'processing' or case
    when own_until is not null then own_until < now()
    else coalesce(locked_until, '-infinity') < now()
      and not exists (select from pillarbox.lease_of(e.claim_id, e.id) as l where l.until >= now())
  end)
  order by id
  for update
)
delete from pillarbox.outbox_events e
using chosen c
where e.id = c.id
returning e.id, coalesce(e.parent_id, e.id), e.status
