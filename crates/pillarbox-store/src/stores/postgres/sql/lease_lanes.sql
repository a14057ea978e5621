-- Leases, renews and releases lane ranges, unless they changed since they were read. Returns how many were written.
-- $1 namespaces   $2 destinations   $3 numbers   $4 ranges, as read   $5 owners, as read   $6 leased, as read
-- $7 owners   $8 does the lease begin now? (otherwise it stays)   $9 leaving   $10 lease
-- Locks: the ranges, in their order; waits for running claims from them.
with given as materialized (
  select * from unnest(
    $1::text[], $2::text[], $3::int[], $4::int[], $5::uuid[], $6::boolean[], $7::uuid[], $8::boolean[], $9::boolean[]
  ) as g (namespace, destination, number, ranges, was_owner, was_held, owner, is_new, leaving)
), seen as materialized (
  select l.namespace, l.destination, l.number, l.ranges, l.owner,
    l.owner is not null and l.leased_until >= now() as held
  from pillarbox.lane_ranges l
  join given g on g.namespace = l.namespace and g.destination = l.destination and g.number = l.number
  order by l.namespace, l.destination, l.number
  for update of l
), written as (
  update pillarbox.lane_ranges l
  set owner = g.owner, leaving = g.leaving,
      leased_until = case when g.owner is null then null when g.is_new then now() + $10 else l.leased_until end
  from given g
  join seen s on s.namespace = g.namespace and s.destination = g.destination and s.number = g.number
  where l.namespace = g.namespace and l.destination = g.destination and l.number = g.number
    and s.ranges = g.ranges and s.held = g.was_held and s.owner is not distinct from g.was_owner
  returning l.number
)
select count(*) from written
