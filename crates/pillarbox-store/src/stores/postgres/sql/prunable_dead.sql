-- The sizes of the rows that prune_dead.sql would read.
-- $1 after this seq   $2 how many
-- Index: outbox_events_ended.
select pillarbox.size(payload, body) from pillarbox.outbox_events where open = 2 and seq > $1 order by seq limit $2
