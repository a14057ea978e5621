-- Deletes the events that are `seen`, each with all its rows: if all have ended, are old enough, and can be locked. A part of the
-- statements that prune.
-- $1 to $5: how long rows are kept
-- A dead row in a lane blocks its key. The copy of an adopted row stays for ten minutes, and until its state was written back.
), rule as materialized (
  select * from unnest($1::text[], $2::interval[], $3::interval[]) as r (name, delivered, dead)
), event as materialized (
  select distinct event as id from seen
), first as materialized (
  select e.id, e.id as event, (/*is_over*/) as is_over from pillarbox.outbox_events e
  where e.id = any(array(select id from event))
  for update of e skip locked
), sibling as materialized (
  select e.id, e.parent_id as event, (/*is_over*/) as is_over from pillarbox.outbox_events e
  where e.parent_id = any(array(select id from event)) and e.parent_id is not null
  for update of e skip locked
), staying as materialized (
  select event from first where is_over is not true
  union all
  select event from sibling where is_over is not true
  union all
  select e.id from pillarbox.outbox_events e
  where e.id = any(array(select id from event)) and e.id not in (select id from first)
  union all
  select e.parent_id from pillarbox.outbox_events e
  where e.parent_id = any(array(select id from event)) and e.parent_id is not null and e.id not in (select id from sibling)
  union all
  select a.event_id from pillarbox.adopted a
  where a.event_id = any(array(select id from event)) and (not a.ended or a.write_back_pending)
), gone as (
  delete from pillarbox.outbox_events e
  where e.id = any(array(
    select id from first where event not in (select event from staying)
    union all
    select id from sibling where event not in (select event from staying)
  ))
  returning e.open is null as is_delivered /*archived*/
