-- Records that a try to write these events back failed: the table rejected them, or their rows are locked.
-- $1 events   $2 rejected?
-- Index: the primary key of adopted. The rows are locked by this transaction.
update pillarbox.adopted set tried_at = now(), rejected = rejected or $2
where event_id = any($1) and write_back_pending and (rejected = $2 or $2)
