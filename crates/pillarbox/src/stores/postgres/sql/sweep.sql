-- Makes rows dead whose attempts are used up and that nobody will settle any more.
-- $1 attempts of a row that does not say   $2 how long after the end of a lease
-- $3 namespaces, or null for all           $4 the reason if a row has none of its own
-- Locks: the chosen rows only; rows locked by others are skipped.
-- Index: outbox_events_leased, outbox_events_waiting, outbox_events_fresh.
--
-- No claim takes an exhausted row, so those that are pending and due stay at the head of their index:
-- looking at the first 500 finds them sooner or later without walking the backlog.
with abandoned as materialized (
  select id from pillarbox.outbox_events
  where status = 'processing' and coalesce(locked_until, '-infinity') < now() - $2
    and attempts >= coalesce(max_attempts, $1)
    and ($3::text[] is null or namespace = any($3))
  order by coalesce(locked_until, '-infinity')
  limit 500
  for update skip locked
), waiting as materialized (
  select id, attempts, max_attempts, namespace from pillarbox.outbox_events
  where status = 'pending' and next_attempt_at > created_at and next_attempt_at <= now()
  order by next_attempt_at, seq
  limit 500
), fresh as materialized (
  select id, attempts, max_attempts, namespace from pillarbox.outbox_events
  where status = 'pending' and next_attempt_at <= created_at
  order by seq
  limit 500
), exhausted as materialized (
  select e.id
  from pillarbox.outbox_events e
  join (select * from waiting union all select * from fresh) as head on head.id = e.id
  where head.attempts >= coalesce(head.max_attempts, $1) and ($3::text[] is null or head.namespace = any($3))
    and e.status = 'pending'
  for update of e skip locked
)
update pillarbox.outbox_events e
set status = 'dead', updated_at = now(), locked_by = null, locked_until = null, claim_id = null,
    last_error = coalesce(e.last_error, $4)
from (select id from abandoned union all select id from exhausted) as gone
where e.id = gone.id
returning e.id
