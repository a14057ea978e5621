-- Writes down where claimed rows go, and makes siblings, in one statement: all of a family or none.
-- $1 worker   $2 rows   $3 claim ids   $4 which member of the family, from 1   $5 how many there are
-- $6 ids of the members   $7 destinations   $8 attempts in all
-- Returns rows that are no longer held under their claim (lost), and members that have to wait.
-- Locks: the rows. Index: the primary key; outbox_events_keyed for what is before a member.
--
-- A member waits if an earlier row of its key is unfinished at its destination and not in the same claim. A row that
-- goes to one place, and may go now, is left as it is: it learns its destination when it is settled.
--
-- Rows are looked up one by one (lateral, limit 1) and lists compared by `in`, which is hashed: left to itself, the planner
-- takes a thousand rows for one and joins them a thousand times.
with given as materialized (
  select * from unnest($2::uuid[], $3::uuid[], $4::int[], $5::int[], $6::uuid[], $7::text[], $8::int[])
    as g (id, claim_id, place, size, member, destination, max_attempts)
), held as materialized (
  select h.id from given g cross join lateral (
    select e.id from pillarbox.outbox_events e
    where e.id = g.id and e.claim_id = g.claim_id and e.locked_by = $1 and e.status || '' = 'processing'
      and coalesce(e.destination, '') = ''
    limit 1
    for update
  ) as h
  where g.place = 1
), member as materialized (
  select g.*, h.lane is not null and exists (
    select from pillarbox.outbox_events o
    where o.lane is not null and o.status in ('pending', 'processing', 'dead')
      and coalesce(o.destination, '') = g.destination and o.namespace = h.namespace
      and o.lane = h.lane and o.ordering_key = h.ordering_key and o.seq < h.seq
      and o.claim_id is distinct from g.claim_id
  ) as waits
  from given g cross join lateral (
    select namespace, lane, ordering_key, seq from pillarbox.outbox_events where id = g.id limit 1
  ) as h
  where g.id in (select id from held)
), first as (
  update pillarbox.outbox_events e
  set destination = m.destination, max_attempts = m.max_attempts, updated_at = now(),
      status = case when m.waits then 'pending' else e.status end,
      attempts = case when m.waits then greatest(e.attempts - 1, 0) else e.attempts end,
      locked_by = case when m.waits then null else e.locked_by end,
      locked_until = case when m.waits then null else e.locked_until end,
      claim_id = case when m.waits then null else e.claim_id end
  from member m
  where m.place = 1 and (m.waits or m.size > 1) and e.id = m.id
), siblings as (
  insert into pillarbox.outbox_events (
    id, seq, parent_id, namespace, topic, event_type, event_version, aggregate_type, aggregate_id, tenant_id,
    ordering_key, unordered, severity, payload, body, content_type, content_encoding, headers, destination, status,
    attempts, max_attempts, next_attempt_at, locked_by, locked_until, claim_id, last_error, created_at
  )
  select m.member, h.seq, coalesce(h.parent_id, h.id), h.namespace, h.topic, h.event_type, h.event_version,
    h.aggregate_type, h.aggregate_id, h.tenant_id, h.ordering_key, h.unordered, h.severity, h.payload, h.body,
    h.content_type, h.content_encoding, h.headers, m.destination,
    case when m.waits then 'pending' else h.status end,
    case when m.waits then greatest(h.attempts - 1, 0) else h.attempts end,
    m.max_attempts, h.next_attempt_at,
    case when m.waits then null else h.locked_by end,
    case when m.waits then null else h.locked_until end,
    case when m.waits then null else h.claim_id end,
    h.last_error, h.created_at
  from member m cross join lateral (
    select * from pillarbox.outbox_events where id = m.id limit 1
  ) as h
  where m.place > 1
)
select g.id, true as lost from given g
where g.place = 1 and g.id not in (select id from held)
union all
select m.member, false from member m where m.waits
