-- Finds backlogs that may have due rows. An idle worker runs it: one query by the simple protocol.
-- /*after*/ is the backlog to begin after, /*limit*/ how many at most,
-- /*scope*/ nothing, or `and next.namespace in (…)`,
-- /*is_served*/ whether the next backlog is one to find, /*jump*/ the next destination to find after it.
-- Index: outbox_events_fresh, outbox_events_waiting, outbox_events_keyed, outbox_events_fresh_keyed, outbox_events_tried;
-- steps from backlog to backlog, never from row to row. Each probe is ordered like its index, so that the plan does not
-- depend on statistics.
--
-- Backlogs of destinations that are not served cost one step for all of them between two that are. Rows for unknown names may
-- be many, and wait for ever.
--
-- A backlog is found if it has a fresh row, if its first waiting row is due, or if one of its first sixteen rows with a
-- key, fresh or tried, is pending and due or has an expired lease. After sixteen others it is found anyway. A row with an expired lease
-- must be found, so that a worker leases its lane. A search that reaches its limit returns its last backlog in any case,
-- and the next search continues there.
with recursive stepped as (
  select given.destination, given.namespace, 0 as step, 0 as found, null::bigint as lowest, false as waited,
    false as keyed
  from (values (/*after*/'' collate "C", '' collate "C")) as given (destination, namespace)
  union all
  select at.destination, at.namespace, s.step + 1,
    s.found + (head.lowest is not null or head.waited or head.keyed)::int, head.lowest, head.waited, head.keyed
  from stepped s
  cross join lateral (
    select destination, namespace from (
      (select coalesce(destination, '') as destination, namespace from pillarbox.outbox_events
       where open = 0 and lane is null
         and (coalesce(destination, ''), namespace) > (s.destination, s.namespace)
       order by coalesce(destination, ''), namespace, seq limit 1)
      union all
      (select coalesce(destination, ''), namespace from pillarbox.outbox_events
       where open = 1 and lane is null
         and (coalesce(destination, ''), namespace) > (s.destination, s.namespace)
       order by coalesce(destination, ''), namespace, next_attempt_at, seq limit 1)
      union all
      (select coalesce(destination, ''), namespace from pillarbox.outbox_events
       where open < 3 and lane is not null
         and (coalesce(destination, ''), namespace) > (s.destination, s.namespace)
       order by coalesce(destination, ''), namespace, lane, ordering_key, seq limit 1)
    ) as one
    order by destination, namespace limit 1
  ) as next
  cross join lateral (
    select case when it.is_served then next.destination else /*jump*/null end as destination,
      case when it.is_served then next.namespace else '' end as namespace, it.is_served
    from (select /*is_served*/true as is_served) as it
  ) as at
  cross join lateral (
    select (next.destination <> 'unrouted' and at.is_served /*scope*/) as ours
  ) as scope
  cross join lateral (
    select
      case when scope.ours then
        (select seq from pillarbox.outbox_events
         where open = 0 and lane is null and status = 'pending'
           and coalesce(destination, '') = next.destination and namespace = next.namespace
         order by coalesce(destination, ''), namespace, seq limit 1)
      end as lowest,
      scope.ours and coalesce(
        (select next_attempt_at <= now() from pillarbox.outbox_events
         where open = 1 and lane is null and status = 'pending'
           and coalesce(destination, '') = next.destination and namespace = next.namespace
         order by coalesce(destination, ''), namespace, next_attempt_at, seq limit 1), false) as waited,
      scope.ours and coalesce(
        (select bool_or(due) or count(*) = 16 from (
           select status = 'pending' and next_attempt_at <= now()
             or own_until < now()
             or status = 'processing' and own_until is null
               and claim_id = any(array(select claim_id from pillarbox.leases where until < now())) as due
           from pillarbox.outbox_events
           where open = 0 and lane is not null
             and coalesce(destination, '') = next.destination and namespace = next.namespace
           order by coalesce(destination, ''), namespace, lane >> 7, seq limit 16
         ) as first), false) or scope.ours and coalesce(
        (select bool_or(due) or count(*) = 16 from (
           select status = 'pending' and next_attempt_at <= now()
             or own_until < now()
             or status = 'processing' and own_until is null
               and claim_id = any(array(select claim_id from pillarbox.leases where until < now())) as due
           from pillarbox.outbox_events
           where open in (1, 2) and lane is not null
             and coalesce(destination, '') = next.destination and namespace = next.namespace
           order by coalesce(destination, ''), namespace, lane, ordering_key, seq limit 16
         ) as first), false) as keyed
    offset 0 -- each is asked once, however often its answer is used
  ) as head
  where s.step < 2000 and s.found <= /*limit*/100 and at.destination is not null
)
select destination, namespace, lowest, waited, keyed, step = 2000 as cut, null::text as paused
from stepped
where step > 0 and (lowest is not null or waited or keyed or step = 2000)
union all
select null, null, null, null, null, null, name from pillarbox.destinations
