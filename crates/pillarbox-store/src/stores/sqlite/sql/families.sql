-- What has become of events: their rows are counted by status.
-- ?1 the events as a JSON array
-- Index: the primary key, outbox_events_family.
select given.value as event,
  count(*) filter (where r.status = 'delivered') as delivered,
  count(*) filter (where r.status = 'dead') as dead,
  count(*) filter (where r.status not in ('delivered', 'dead')) as unfinished,
  json_group_array(coalesce(r.destination, '') || ': ' || coalesce(r.last_error, '') order by r.destination, r.id)
    filter (where r.status = 'dead') as errors
from json_each(?1) as given
join outbox_events as r on r.id = given.value or (r.parent_id = given.value and r.parent_id is not null)
group by given.value
