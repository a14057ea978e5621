-- The unfinished rows of a tenant with a key, and how many of its rows are behind each in its key. Of each state that the indexes know,
-- its first 10,000 rows are read, with a key or without. An index by key cannot serve a role that is bound to a tenant:
-- PostgreSQL takes `coalesce(destination, '')` for a condition that could tell of other rows.
-- /*tenant*/ is the tenant.
-- Index: outbox_events_open_of_tenant.
own as materialized (
  select id, seq, open, namespace, coalesce(destination, '') as destination, lane, ordering_key, status, attempts,
    row_number() over (key order by seq) as place, count(*) over (key order by seq desc) - 1 as behind
  from (
    (select * from pillarbox.outbox_events where tenant_id = /*tenant*/ and open = 0 order by seq limit 10000)
    union all
    (select * from pillarbox.outbox_events where tenant_id = /*tenant*/ and open = 1 order by seq limit 10000)
    union all
    (select * from pillarbox.outbox_events where tenant_id = /*tenant*/ and open = 2 order by seq limit 10000)
  ) as unfinished
  where lane is not null
  window key as (partition by coalesce(destination, ''), namespace, lane, ordering_key)
)
