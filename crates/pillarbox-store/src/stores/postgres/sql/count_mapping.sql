-- How many mapping rows lock_mapping.sql would lock if it waited for all of them.
-- $1 rows
select count(*) from pillarbox.adopted a
where a.event_id = any(array(
  select coalesce(e.parent_id, e.id) from pillarbox.outbox_events e where e.id = any($1)
))
