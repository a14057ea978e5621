-- Pauses a destination. If it is paused already, its reason stays.
-- ?1 destination   ?2 the reason
insert into pillarbox_paused (destination, reason) values (?1, ?2) on conflict (destination) do nothing
