-- Events of an adopted table whose write-back is pending, those first that were tried longest ago.
-- $1 adopted table   $2 how many   $3 those that the table rejected?   $4 how long after the last try
-- Locks: their mapping rows; rows locked by others are skipped.
-- Index: adopted_pending.
select event_id from pillarbox.adopted
where adopted_table = $1 and write_back_pending and rejected = $3 and tried_at < now() - $4::interval
order by tried_at limit $2
for update skip locked
