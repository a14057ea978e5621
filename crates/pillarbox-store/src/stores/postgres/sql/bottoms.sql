-- Below which seq each backlog has no unfinished fresh row with a key.
-- $1 destinations ('' for none yet)   $2 namespaces   $3 the last bottom of each   $4 up to here every row is visible
-- Index: outbox_events_fresh_keyed; one probe per bucket, from the last bottom.
select g.place, least(min(f.seq), $4 + 1) as bottom
from unnest($1::text[], $2::text[], $3::bigint[]) with ordinality as g (destination, namespace, bottom, place)
cross join generate_series(0, 31) as b (number)
left join lateral (
  select seq from pillarbox.outbox_events
  where open = 0 and lane is not null and coalesce(destination, '') = g.destination and namespace = g.namespace
    and lane >> 7 = b.number and seq >= g.bottom
  order by coalesce(destination, ''), namespace, lane >> 7, seq
  limit 1
) as f on true
group by g.place
