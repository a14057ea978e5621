-- Destinations that are paused or have pending or dead rows, in the order of their names: known and paused ones, and the first
-- others. Rows may name any number of them.
-- $1 namespaces, or null for all   $2 up to how many rows of each are counted   $3 known ones   $4 how many others
-- $5 the tenant, or null for all: it sees a pause only where it has rows
-- Index: outbox_events_fresh, outbox_events_waiting, outbox_events_keyed, outbox_events_dead_at; steps from name to name.
with recursive stepped as (
  select ''::text collate "C" as name, 0 as step
  union all
  select next.name, s.step + 1 from stepped s cross join lateral (
    select one.name from (
      (select coalesce(destination, '') as name from pillarbox.outbox_events
       where open = 0 and lane is null
         and coalesce(destination, '') > s.name
       order by coalesce(destination, ''), namespace, seq limit 1)
      union all
      (select coalesce(destination, '') from pillarbox.outbox_events
       where open = 1 and lane is null
         and coalesce(destination, '') > s.name
       order by coalesce(destination, ''), namespace, next_attempt_at, seq limit 1)
      union all
      (select coalesce(destination, '') from pillarbox.outbox_events
       where open < 3 and lane is not null and coalesce(destination, '') > s.name
       order by coalesce(destination, ''), namespace, lane, ordering_key, seq limit 1)
      union all
      (select coalesce(destination, '') from pillarbox.outbox_events
       where open = 2 and coalesce(destination, '') > s.name
       order by coalesce(destination, ''), namespace, seq limit 1)
    ) as one
    order by one.name limit 1
  ) as next
  where s.step < $4
), name as (
  select name from stepped
  union select known collate "C" from unnest($3::text[]) as known
  union select d.name collate "C" from pillarbox.destinations d
), counted as (
  select n.name,
    (select count(*) from (select from pillarbox.outbox_events
      where open = 0 and lane is null and status = 'pending'
        and coalesce(destination, '') = n.name and ($1::text[] is null or namespace = any($1))
        and ($5::uuid is null or tenant_id = $5) limit $2) as fresh)
    + (select count(*) from (select from pillarbox.outbox_events
      where open = 1 and lane is null and status = 'pending'
        and coalesce(destination, '') = n.name and ($1::text[] is null or namespace = any($1))
        and ($5::uuid is null or tenant_id = $5) limit $2) as waiting)
    + (select count(*) from (select from pillarbox.outbox_events
      where open < 3 and lane is not null and status = 'pending'
        and coalesce(destination, '') = n.name and ($1::text[] is null or namespace = any($1))
        and ($5::uuid is null or tenant_id = $5) limit $2) as keyed)
    as pending,
    (select count(*) from (select from pillarbox.outbox_events
      where open = 2
        and coalesce(destination, '') = n.name and ($1::text[] is null or namespace = any($1))
        and ($5::uuid is null or tenant_id = $5) limit $2) as dead) as dead
  from name n where n.name <> ''
)
select c.name, least(c.pending, $2) as pending, c.dead, d.paused_at, d.reason, d.disabled
from counted c left join pillarbox.destinations d on d.name = c.name
where c.pending > 0 or c.dead > 0 or (d.name is not null and $5::uuid is null and ($1::text[] is null or cardinality($1) > 0))
order by c.name
