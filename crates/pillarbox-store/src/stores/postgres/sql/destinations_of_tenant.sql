-- Destinations for which a tenant has pending or dead rows, in the order of their names. The reason of a pause is not the tenant's.
-- $1 namespaces, or null for all   $2 up to how many rows of each are counted   $3 known ones   $4 how many others   $5 the tenant
-- Index: outbox_events_open_of_tenant. Reads ten times $2 rows of each state at most, the oldest.
with own as materialized (
  (select coalesce(destination, '') as name, status from pillarbox.outbox_events
   where tenant_id = $5 and open = 0 and ($1::text[] is null or namespace = any($1)) order by seq limit 10 * $2)
  union all
  (select coalesce(destination, ''), status from pillarbox.outbox_events
   where tenant_id = $5 and open = 1 and ($1::text[] is null or namespace = any($1)) order by seq limit 10 * $2)
  union all
  (select coalesce(destination, ''), status from pillarbox.outbox_events
   where tenant_id = $5 and open = 2 and ($1::text[] is null or namespace = any($1)) order by seq limit 10 * $2)
), counted as (
  select name, count(*) filter (where status = 'pending') as pending, count(*) filter (where status = 'dead') as dead
  from own where name <> '' group by name
), listed as (
  select * from counted where pending > 0 or dead > 0
  order by name = any($3::text[]) desc, name limit $4 + cardinality($3::text[])
)
select l.name, least(l.pending, $2) as pending, least(l.dead, $2) as dead, d.paused_at, '' as reason, d.disabled
from listed l left join pillarbox.destinations d on d.name = l.name
order by l.name
