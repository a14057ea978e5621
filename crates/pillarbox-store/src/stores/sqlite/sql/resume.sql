-- Resumes a destination.
-- ?1 destination
delete from pillarbox_paused where destination = ?1
