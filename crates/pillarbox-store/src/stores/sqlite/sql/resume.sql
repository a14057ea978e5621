-- Resumes a destination. Returns whether the destination itself had asked for no more events.
-- ?1 destination
delete from pillarbox_paused where destination = ?1 returning disabled
