-- Writes down where claimed rows go, and makes siblings, in one statement: all of a family or none.
-- $1 worker   $2 rows   $3 claim ids   $4 first destinations   $5 attempts in all   $6 has siblings
-- and of each sibling: $7 its row   $8 its own id   $9 destination   $10 attempts in all
-- Returns rows that are no longer held under their claim (lost), and members that have to wait.
-- Locks: the rows. Index: the primary key; outbox_events_keyed for what is before a member.
--
-- A member waits if an earlier row of its key is unfinished at its destination and not in the same claim. A row that
-- goes to one place, and may go now, is left as it is: it learns its destination when it is settled.
--
-- First members and siblings come apart, so that nothing here is joined through a condition: the planner would take it
-- for a handful of rows, and compare every row with every other (1.4 s for 1,000 rows; so it is 10 ms).
with given as materialized (
  select * from unnest($2::uuid[], $3::uuid[], $4::text[], $5::int[], $6::boolean[])
    as g (id, claim_id, destination, max_attempts, has_siblings)
), held as materialized (
  select e.id, e.claim_id, e.namespace, e.lane, e.ordering_key, e.seq
  from pillarbox.outbox_events e join given g on g.id = e.id and g.claim_id = e.claim_id
  where e.id = any(array(select id from given)) and e.locked_by = $1 and e.status || '' = 'processing'
    and coalesce(e.destination, '') = ''
  for update of e
), first as materialized (
  select g.*, h.lane is not null and exists (
    select from pillarbox.outbox_events o
    where o.lane is not null and o.status in ('pending', 'processing', 'dead')
      and coalesce(o.destination, '') = g.destination and o.namespace = h.namespace
      and o.lane = h.lane and o.ordering_key = h.ordering_key and o.seq < h.seq
      and o.claim_id is distinct from h.claim_id
  ) as waits
  from given g join held h on h.id = g.id
), sibling as materialized (
  select s.*, h.lane is not null and exists (
    select from pillarbox.outbox_events o
    where o.lane is not null and o.status in ('pending', 'processing', 'dead')
      and coalesce(o.destination, '') = s.destination and o.namespace = h.namespace
      and o.lane = h.lane and o.ordering_key = h.ordering_key and o.seq < h.seq
      and o.claim_id is distinct from h.claim_id
  ) as waits
  from unnest($7::uuid[], $8::uuid[], $9::text[], $10::int[]) as s (id, member, destination, max_attempts)
  join held h on h.id = s.id
), written as (
  update pillarbox.outbox_events e
  set destination = f.destination, max_attempts = f.max_attempts, updated_at = now(),
      status = case when f.waits then 'pending' else e.status end,
      attempts = case when f.waits then greatest(e.attempts - 1, 0) else e.attempts end,
      locked_by = case when f.waits then null else e.locked_by end,
      locked_until = case when f.waits then null else e.locked_until end,
      claim_id = case when f.waits then null else e.claim_id end
  from first f
  where e.id = any(array(select id from first where waits or has_siblings)) and e.id = f.id
), born as (
  insert into pillarbox.outbox_events (
    id, seq, parent_id, namespace, topic, event_type, event_version, aggregate_type, aggregate_id, tenant_id,
    ordering_key, unordered, severity, payload, body, content_type, content_encoding, headers, destination, status,
    attempts, max_attempts, next_attempt_at, locked_by, locked_until, claim_id, last_error, created_at
  )
  select s.member, e.seq, coalesce(e.parent_id, e.id), e.namespace, e.topic, e.event_type, e.event_version,
    e.aggregate_type, e.aggregate_id, e.tenant_id, e.ordering_key, e.unordered, e.severity, e.payload, e.body,
    e.content_type, e.content_encoding, e.headers, s.destination,
    case when s.waits then 'pending' else e.status end,
    case when s.waits then greatest(e.attempts - 1, 0) else e.attempts end,
    s.max_attempts, e.next_attempt_at,
    case when s.waits then null else e.locked_by end,
    case when s.waits then null else e.locked_until end,
    case when s.waits then null else e.claim_id end,
    e.last_error, e.created_at
  from sibling s join pillarbox.outbox_events e on e.id = s.id
  where e.id = any(array(select id from sibling))
)
select g.id, true as lost from given g where not exists (select from held h where h.id = g.id)
union all
select id, false from first where waits
union all
select member, false from sibling where waits
