-- Namespaces with delivered rows, after this one in their order.
-- ?1 the namespace, or ''   ?2 how many
-- Index: outbox_events_delivered, with one probe for each.
with recursive name (namespace) as (
  select (select min(namespace) from outbox_events where status = 'delivered' and namespace > ?1)
  union all
  select (select min(e.namespace) from outbox_events as e where e.status = 'delivered' and e.namespace > name.namespace)
  from name where name.namespace is not null
)
select namespace from name where namespace is not null limit ?2
