-- Writes the destinations of claimed rows, and inserts their siblings. One statement: the whole family or nothing.
-- $1 worker   $2 rows   $3 claim ids   $4 first destinations   $5 attempts in all   $6 has siblings
-- and of each sibling: $7 its row   $8 its own id   $9 destination   $10 attempts in all
-- Returns rows that are no longer held under their claim (lost), and members that must wait.
-- Locks: the rows. Inserts the lease of the siblings. Index: the primary key; outbox_events_keyed for rows before a member.
--
-- A row with a key is claimed by its key from here on: claims of fresh rows may be beyond its `seq` at this destination.
--
-- A member waits if an earlier row of its key is unfinished at its destination and not in the same claim. A row with one
-- destination that need not wait stays as it is. Its settlement writes the destination.
--
-- Rows are looked up one by one (lateral, limit 1), and lists are compared by `in`, which is hashed. The planner expects a
-- few rows, and a join would compare each with every other: 1.4 s for 1,000 rows instead of 10 ms.
with given as materialized (
  select * from unnest($2::uuid[], $3::uuid[], $4::text[], $5::int[], $6::boolean[])
    as g (id, claim_id, destination, max_attempts, has_siblings)
), held as materialized (
  select g.destination, h.* from given g cross join lateral (
    select e.id, e.claim_id, e.own_lease, e.namespace, e.lane, e.ordering_key, e.seq
    from pillarbox.outbox_events e
    where e.id = g.id and e.claim_id = g.claim_id and e.locked_by = $1 and e.status || '' = 'processing'
      and coalesce(e.destination, '') = ''
    limit 1
    for update
  ) as h
), lease as materialized (
  select claim_id, max(until) as until from pillarbox.leases
  where claim_id = any(array(select distinct claim_id from held where not own_lease))
  group by claim_id
), waiting as materialized (
  select id from (
    -- Row by row. As a plain condition it would be joined with all rows that have a key.
    select h.id, h.lane is not null and exists (
      select from pillarbox.outbox_events o
      where o.open < 3 and o.lane is not null
        and coalesce(o.destination, '') = h.destination and o.namespace = h.namespace
        and o.lane = h.lane and o.ordering_key = h.ordering_key and o.seq < h.seq
        and o.claim_id is distinct from h.claim_id
    ) as waits
    from held h offset 0
  ) as asked
  where waits
), first as materialized (
  select g.*, g.id in (select id from held) as is_held, g.id in (select id from waiting) as waits from given g
), sibling as materialized (
  select s.*, h.claim_id, h.own_lease or h.claim_id not in (select claim_id from lease) as own_lease,
    h.lane is not null and exists (
    select from pillarbox.outbox_events o
    where o.open < 3 and o.lane is not null
      and coalesce(o.destination, '') = s.destination and o.namespace = h.namespace
      and o.lane = h.lane and o.ordering_key = h.ordering_key and o.seq < h.seq
      and o.claim_id is distinct from h.claim_id
  ) as waits
  from unnest($7::uuid[], $8::uuid[], $9::text[], $10::int[]) as s (id, member, destination, max_attempts)
  cross join lateral (
    select claim_id, own_lease, namespace, lane, ordering_key, seq from pillarbox.outbox_events where id = s.id limit 1
  ) as h
  where s.id in (select id from held)
), written as (
  update pillarbox.outbox_events e
  set destination = f.destination, max_attempts = f.max_attempts, updated_at = now(),
      by_key = e.lane is not null,
      status = case when f.waits then 'pending' else e.status end,
      attempts = case when f.waits then greatest(e.attempts - 1, 0) else e.attempts end,
      locked_by = case when f.waits then null else e.locked_by end,
      locked_until = case when f.waits then null else e.locked_until end,
      claim_id = case when f.waits then null else e.claim_id end
  from first f
  where e.id = any(array(select id from first where is_held and (waits or has_siblings))) and e.id = f.id
), born as (
  insert into pillarbox.outbox_events (
    id, seq, parent_id, /*event_columns*/ unordered, payload, body, destination, status, attempts, max_attempts,
    next_attempt_at, locked_by, locked_until, claim_id, own_lease, by_key, last_error, created_at, adopted_table,
    enqueued_by
  )
  select s.member, e.seq, coalesce(e.parent_id, e.id), /*e.event_columns*/ e.unordered, e.payload, e.body, s.destination,
    case when s.waits then 'pending' else e.status end,
    case when s.waits then greatest(e.attempts - 1, 0) else e.attempts end,
    s.max_attempts, e.next_attempt_at,
    case when s.waits then null else e.locked_by end,
    case when s.waits then null else e.locked_until end,
    case when s.waits then null else e.claim_id end,
    s.own_lease and not s.waits, e.lane is not null, e.last_error, e.created_at, e.adopted_table,
    e.enqueued_by
  from sibling s cross join lateral (select * from pillarbox.outbox_events where id = s.id limit 1) as e
), leased as (
  insert into pillarbox.leases (claim_id, first_row, worker, until, rows)
  select l.claim_id, (array_agg(s.member))[1], $1, l.until, array_agg(s.member)
  from sibling s join lease l on l.claim_id = s.claim_id
  where not s.waits and not s.own_lease
  group by l.claim_id, l.until
)
select id, true as lost from first where not is_held
union all
select id, false from first where waits
union all
select member, false from sibling where waits
