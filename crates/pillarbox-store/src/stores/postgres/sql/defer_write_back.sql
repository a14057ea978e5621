-- Makes the write-back of these events pending.
-- $1 events
update pillarbox.adopted set write_back_pending = true where event_id = any($1) and not write_back_pending
