-- Counts the rows of all other destinations that are pending or dead.
-- $1 the destinations that are not counted   $2 up to how many rows are read in each index
-- Index: as in sample_destinations.sql; from one known name to the next. Rows may name any number of destinations.
with name as materialized (
  select name collate "C" as name from unnest($1::text[]) as name union select ''
), last as materialized (
  -- After every name that there is.
  select coalesce(max(one.name), '') || '~' as name from (
    (select coalesce(destination, '') as name from pillarbox.outbox_events where open = 0 and lane is null
     order by coalesce(destination, '') desc, namespace desc, seq desc limit 1)
    union all
    (select coalesce(destination, '') from pillarbox.outbox_events where open = 1 and lane is null
     order by coalesce(destination, '') desc, namespace desc, next_attempt_at desc, seq desc limit 1)
    union all
    (select coalesce(destination, '') from pillarbox.outbox_events where open < 3 and lane is not null
     order by coalesce(destination, '') desc, namespace desc, lane desc, ordering_key desc, seq desc limit 1)
    union all
    (select coalesce(destination, '') from pillarbox.outbox_events where open = 2
     order by coalesce(destination, '') desc, namespace desc, seq desc limit 1)
  ) as one
), gap as materialized (
  select n.name as after, coalesce(lead(n.name) over (order by n.name), last.name) as before from name n cross join last
), pending as materialized (
  (select r.* from gap g cross join lateral (
    select status, next_attempt_at from pillarbox.outbox_events
    where open = 0 and lane is null and coalesce(destination, '') > g.after and coalesce(destination, '') < g.before
    order by coalesce(destination, ''), namespace, seq limit $2
  ) as r limit $2)
  union all
  (select r.* from gap g cross join lateral (
    select status, next_attempt_at from pillarbox.outbox_events
    where open = 1 and lane is null and coalesce(destination, '') > g.after and coalesce(destination, '') < g.before
    order by coalesce(destination, ''), namespace, next_attempt_at, seq limit $2
  ) as r limit $2)
  union all
  (select r.* from gap g cross join lateral (
    select status, next_attempt_at from pillarbox.outbox_events
    where open = 0 and lane is not null and coalesce(destination, '') > g.after and coalesce(destination, '') < g.before
    order by coalesce(destination, ''), namespace, lane >> 7, seq limit $2
  ) as r limit $2)
  union all
  (select r.* from gap g cross join lateral (
    select status, next_attempt_at from pillarbox.outbox_events
    where open in (1, 2) and lane is not null and coalesce(destination, '') > g.after and coalesce(destination, '') < g.before
    order by coalesce(destination, ''), namespace, lane, ordering_key, seq limit $2
  ) as r limit $2)
)
select
  (select count(*) from pending where status = 'pending') as pending,
  coalesce((select extract(epoch from now() - min(next_attempt_at)) from pending
    where status = 'pending' and next_attempt_at <= now() and isfinite(next_attempt_at)), 0)::float8 as oldest,
  (select count(*) from (select from gap g cross join lateral (
    select from pillarbox.outbox_events
    where open = 2 and coalesce(destination, '') > g.after and coalesce(destination, '') < g.before
    order by coalesce(destination, ''), namespace, seq limit $2
  ) as r limit $2) as dead) as dead
