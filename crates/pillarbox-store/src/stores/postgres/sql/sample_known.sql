-- The time of the snapshot, and the destinations of live workers, by name. $1 how many at most
select now() as at, array(
  select distinct served.name collate "C" as name
  from pillarbox.workers w cross join lateral jsonb_array_elements_text(
    case when jsonb_typeof(w.serves -> 'destinations') = 'array' then w.serves -> 'destinations' else '[]'::jsonb end
  ) as served (name)
  where w.alive_until >= now()
  order by 1 limit $1
) as destinations
