-- Deletes events, each with all its rows, if all have ended and are old enough. Returns the status and the event of each
-- row. /*archived*/ is archived.sql, if rows are archived.
-- ?1 the events as a JSON array   ?2 how long rows are kept: {namespace: [delivered, dead]}   ?3 [delivered, dead] of others
-- A row that is kept for ever has null, which is older than nothing. A dead row in a lane blocks its key.
-- Index: the one on id, outbox_events_family.
with member as materialized (
  select e.rowno, given.value as event, case
    when e.status = 'delivered' then e.delivered_at < strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', coalesce(
      (select value from json_each(?2) where key = e.namespace), ?3) ->> 0)
    when e.status = 'dead' and e.lane is null then e.updated_at < strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', coalesce(
      (select value from json_each(?2) where key = e.namespace), ?3) ->> 1)
  end as is_over
  from json_each(?1) as given
  join outbox_events as e on e.id = given.value or (e.parent_id = given.value and e.parent_id is not null)
)
delete from outbox_events
where rowno in (
  select rowno from member
  where event not in (select event from member where is_over is not true)
)
returning status, coalesce(parent_id, id) as event, /*archived*/null as row
