-- Namespaces with delivered rows, from the last one down. By the simple protocol; /*below*/ limits where to begin.
-- Index: outbox_events_delivered, with one probe for each. The newest row of a namespace is the one that is there: what is deleted
-- and not vacuumed yet is among the oldest.
with recursive name as (
  (select namespace from pillarbox.outbox_events where open is null and /*below*/true
   order by namespace desc, delivered_at desc limit 1)
  union all
  select (
    select e.namespace from pillarbox.outbox_events e where e.open is null and e.namespace < name.namespace
    order by e.namespace desc, e.delivered_at desc limit 1
  )
  from name where name.namespace is not null
)
select namespace from name where namespace is not null limit /*limit*/100
