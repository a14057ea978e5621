-- What a claim returns of each row `e`, in the order in which decode.rs reads it. A sibling carries its parent's
-- dedupe key.
e.id, e.parent_id, e.seq, /*e.event_columns*/
case when e.parent_id is null then e.dedupe_key
  else (select p.dedupe_key from pillarbox.outbox_events p where p.id = e.parent_id) end as dedupe_key,
e.payload, e.body, nullif(e.destination, '') as destination, e.attempts, e.max_attempts, e.created_at, e.lane,
-- Does any unfinished row with a key have a destination, of this key or another? Evaluated once for the whole claim.
e.lane is not null and coalesce(e.destination, '') = '' and (
  select exists (
    select from pillarbox.outbox_events o
    where o.open < 3 and o.lane is not null and coalesce(o.destination, '') > '')
) as contested
