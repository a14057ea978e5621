-- Writes down where claimed rows go, and makes siblings, in one statement: all of a family or none.
-- $1 worker   $2 rows   $3 claim ids   $4 which member of the family, from 1   $5 how many there are
-- $6 ids of the members   $7 destinations   $8 attempts in all
-- Returns rows that are no longer held under their claim (lost), and members that have to wait.
-- Locks: the rows. Index: the primary key; outbox_events_keyed for what is before a member.
--
-- A member waits if an earlier row of its key is unfinished at its destination and not in the same claim. A row that
-- goes to one place, and may go now, is left as it is: it learns its destination when it is settled.
with given as materialized (
  select * from unnest($2::uuid[], $3::uuid[], $4::int[], $5::int[], $6::uuid[], $7::text[], $8::int[])
    as g (id, claim_id, place, size, member, destination, max_attempts)
), held as materialized (
  select e.* from pillarbox.outbox_events e join given g on g.id = e.id and g.claim_id = e.claim_id and g.place = 1
  where e.id = any(array(select id from given)) and e.locked_by = $1 and e.status || '' = 'processing'
    and coalesce(e.destination, '') = ''
  for update of e
), member as materialized (
  select g.*, h.lane is not null and exists (
    select from pillarbox.outbox_events o
    where o.lane is not null and o.status in ('pending', 'processing', 'dead')
      and coalesce(o.destination, '') = g.destination and o.namespace = h.namespace
      and o.lane = h.lane and o.ordering_key = h.ordering_key and o.seq < h.seq
      and o.claim_id is distinct from g.claim_id
  ) as waits
  from given g join held h on h.id = g.id
), first as (
  update pillarbox.outbox_events e
  set destination = m.destination, max_attempts = m.max_attempts, updated_at = now(),
      status = case when m.waits then 'pending' else e.status end,
      attempts = case when m.waits then greatest(e.attempts - 1, 0) else e.attempts end,
      locked_by = case when m.waits then null else e.locked_by end,
      locked_until = case when m.waits then null else e.locked_until end,
      claim_id = case when m.waits then null else e.claim_id end
  from member m
  where m.place = 1 and (m.waits or m.size > 1) and e.id = m.id and e.id = any(array(select id from given))
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
  from member m join held h on h.id = m.id
  where m.place > 1
)
select g.id, true as lost from given g
where g.place = 1 and not exists (select from held h where h.id = g.id)
union all
select m.member, false from member m where m.waits
