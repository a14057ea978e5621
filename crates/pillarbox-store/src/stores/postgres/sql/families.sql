-- What has become of events: their rows are counted by status.
-- $1 the events   $2 how many errors of each
-- Index: the primary key, outbox_events_siblings; row by row, for a few events at a time.
select given.id as event,
  count(*) filter (where r.status = 'delivered') as delivered,
  count(*) filter (where r.status = 'dead') as dead,
  count(*) filter (where r.status not in ('delivered', 'dead')) as unfinished,
  coalesce((array_agg(coalesce(r.destination, '') || ': ' || coalesce(r.last_error, '') order by r.destination, r.id)
    filter (where r.status = 'dead'))[:$2], '{}') as errors
from unnest($1::uuid[]) as given (id)
cross join lateral (
  select id, status, destination, last_error from pillarbox.outbox_events where id = given.id
  union all
  select id, status, destination, last_error from pillarbox.outbox_events
  where parent_id = given.id and parent_id is not null
) as r
group by given.id
