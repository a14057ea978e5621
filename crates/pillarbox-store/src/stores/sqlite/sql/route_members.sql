-- The members that can be written, because their row is held and has no destination. Also whether each must wait for an
-- earlier row of its key at its destination.
-- ?1 worker   ?2 a JSON array of {row, claim, destination}
-- Index: the one on id; outbox_events_keyed.
--
-- A member does not wait for a row of the same claim: the claim sends them one after another.
select g.key as place, coalesce(e.lane = 0 and exists (
  select 1 from outbox_events as other
  where other.lane = 0 and other.status in ('pending', 'processing', 'dead') and other.seq is not null
    and coalesce(other.destination, '') = g.value ->> 'destination'
    and other.namespace = e.namespace and other.ordering_key = e.ordering_key and other.seq < e.seq
    and coalesce(other.claim_id, '') <> g.value ->> 'claim'
), 0) as waits
from json_each(?2) as g
cross join outbox_events as e on e.id = g.value ->> 'row'
where e.claim_id = g.value ->> 'claim' and e.locked_by = ?1 and e.status = 'processing' and e.destination is null
