-- The sizes of the rows that prune_delivered.sql would read.
-- $1 the namespace   $2 how long its rows are kept   $3 not delivered before   $4 how many rows to pass over   $5 how many to read
-- Index: outbox_events_delivered.
select pillarbox.size(payload, body) from pillarbox.outbox_events
where open is null and namespace = $1 and delivered_at >= $3 and delivered_at < now() - $2
order by delivered_at
offset $4 limit $5
