-- Pauses or disables a destination. If it is paused already, its reason stays.
-- ?1 destination   ?2 the reason   ?3 did the destination ask for it?
insert into pillarbox_paused (destination, reason, disabled) values (?1, ?2, ?3) on conflict (destination) do nothing
