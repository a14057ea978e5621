-- Finds events that ended without a write-back, and makes it pending. A worker that does not adopt the table settles so.
-- $1 adopted table
-- Locks: their mapping rows; rows locked by others are skipped.
-- Index: adopted_open; each event then looks up its rows by the primary key and by outbox_events_siblings.
with ended as materialized (
  select a.event_id from pillarbox.adopted a
  where a.adopted_table = $1 and not a.ended and not a.rejected and not a.write_back_pending
    and (select true from pillarbox.outbox_events e
      where e.id = a.event_id and e.status || '' not in ('delivered', 'dead')) is null
    and (select true from pillarbox.outbox_events e
      where e.parent_id = a.event_id and e.status || '' not in ('delivered', 'dead') limit 1) is null
  for update of a skip locked
)
update pillarbox.adopted a set write_back_pending = true where a.event_id = any(array(select event_id from ended))
