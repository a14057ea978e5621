-- Leases, renews and releases lane ranges, unless they changed since they were read. Returns how many were written.
-- $1 namespaces   $2 numbers   $3 ranges, as read   $4 owners, as read   $5 leased, as read
-- $6 wanted   $7 owners   $8 does the lease begin now? (otherwise it stays)   $9 leaving   $10 lease
-- Locks: the ranges, in their order; waits for running claims from them.
with given as materialized (
  select * from unnest(
    $1::text[], $2::int[], $3::int[], $4::uuid[], $5::boolean[], $6::int[], $7::uuid[], $8::boolean[], $9::boolean[]
  ) as g (namespace, number, ranges, was_owner, was_held, wanted, owner, is_new, leaving)
), seen as materialized (
  select l.namespace, l.number, l.ranges, l.owner, l.owner is not null and l.leased_until >= now() as held
  from pillarbox.lane_ranges l join given g on g.namespace = l.namespace and g.number = l.number
  order by l.namespace, l.number
  for update of l
), written as (
  update pillarbox.lane_ranges l
  set wanted = g.wanted, owner = g.owner, leaving = g.leaving,
      leased_until = case when g.owner is null then null when g.is_new then now() + $10 else l.leased_until end
  from given g join seen s on s.namespace = g.namespace and s.number = g.number
  where l.namespace = g.namespace and l.number = g.number and s.ranges = g.ranges and s.held = g.was_held
    and s.owner is not distinct from g.was_owner
  returning l.number
)
select count(*) from written
