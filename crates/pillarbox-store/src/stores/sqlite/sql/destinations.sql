-- Destinations that are paused or have pending or dead rows, with counts up to a cap: known and paused ones, and the first
-- others. Rows may name any number of them.
-- ?1 namespaces as a JSON array, or null for all   ?2 the cap   ?3 known ones as a JSON array   ?4 how many others, of each kind
-- /*tenant*/ is the tenant, which sees a pause only where it has rows
-- Index: outbox_events_fresh, outbox_events_waiting, outbox_events_dead_there. Steps from name to name.
with recursive fresh (name, step) as (
  select '', 0
  union all
  select (
    select coalesce(destination, '') from outbox_events
    where status = 'pending' and next_attempt_at <= created_at and seq is not null
      and coalesce(destination, '') > fresh.name
    order by coalesce(destination, '') limit 1
  ) as next, fresh.step + 1
  from fresh where next is not null and fresh.step < ?4
), waiting (name, step) as (
  select '', 0
  union all
  select (
    select coalesce(destination, '') from outbox_events
    where status = 'pending' and next_attempt_at > created_at and seq is not null
      and coalesce(destination, '') > waiting.name
    order by coalesce(destination, '') limit 1
  ) as next, waiting.step + 1
  from waiting where next is not null and waiting.step < ?4
), dead (name, step) as (
  select '', 0
  union all
  select (
    select coalesce(destination, '') from outbox_events
    where status = 'dead' and coalesce(destination, '') > dead.name
    order by coalesce(destination, '') limit 1
  ) as next, dead.step + 1
  from dead where next is not null and dead.step < ?4
), known (name) as materialized (
  select name from fresh union select name from waiting union select name from dead
  union select destination from pillarbox_paused union select value from json_each(?3)
), counted as materialized (
  select known.name, (
    select count(*) from (
      select 1 from outbox_events
      where status = 'pending' and next_attempt_at <= created_at and seq is not null
        and coalesce(destination, '') = known.name
        and (?1 is null or namespace in (select value from json_each(?1))) /*tenant*/
      limit ?2
    )
  ) + (
    select count(*) from (
      select 1 from outbox_events
      where status = 'pending' and next_attempt_at > created_at and seq is not null
        and coalesce(destination, '') = known.name
        and (?1 is null or namespace in (select value from json_each(?1))) /*tenant*/
      limit ?2
    )
  ) as pending, (
    select count(*) from (
      select 1 from outbox_events
      where status = 'dead' and coalesce(destination, '') = known.name
        and (?1 is null or namespace in (select value from json_each(?1))) /*tenant*/
      limit ?2
    )
  ) as dead
  from known where known.name <> ''
)
select counted.name, min(counted.pending, ?2) as pending, counted.dead, paused.since, paused.reason,
  coalesce(paused.disabled, 0) as disabled
from counted
left join pillarbox_paused as paused on paused.destination = counted.name
where counted.pending > 0 or counted.dead > 0
  or (paused.since is not null and (?1 is null or json_array_length(?1) > 0) and /*system*/true)
order by counted.name
