-- The events that the caller's transaction sees in the outbox, each as JSON, in the order of `seq`, without siblings.
-- $1 the namespace, or null for all of them
-- Index: none; for tests, which have few rows.
select seen.seq as place, row_to_json(seen)::text as id
from (
  select e.seq, e.id as event_id, /*e.event_columns*/ e.dedupe_key, e.payload, encode(e.body, 'hex') as body, e.destination,
    case when e.attempts = 0 and e.next_attempt_at > e.created_at
      then (extract(epoch from e.next_attempt_at) * 1000000)::bigint end as deliver_at
  from pillarbox.outbox_events e
  where e.parent_id is null and ($1::text is null or e.namespace = $1::text)
) as seen
order by seen.seq
