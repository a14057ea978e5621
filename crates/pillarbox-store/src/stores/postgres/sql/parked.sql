-- Parked rows by seq, in the columns of delivery.sql without payload.
-- $1 namespaces, or null for all   $2 after this seq   $3 how many
-- /*what*/ is the predicate of the partial index that serves.
select e.id, e.parent_id, e.seq, /*e.event_columns*/
  case when e.parent_id is null then e.dedupe_key
    else (select p.dedupe_key from pillarbox.outbox_events p where p.id = e.parent_id) end as dedupe_key,
  '{}'::jsonb as payload, null::bytea as body, nullif(e.destination, '') as destination
from pillarbox.outbox_events e
where /*what*/ true and ($1::text[] is null or e.namespace = any($1)) and e.seq > $2
order by e.seq
limit $3
