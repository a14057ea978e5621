-- Events of an adopted table whose write-back is pending.
-- $1 adopted table   $2 how many
-- Locks: their mapping rows; rows locked by others are skipped.
-- Index: adopted_pending.
select event_id from pillarbox.adopted where adopted_table = $1 and write_back_pending limit $2 for update skip locked
