-- Pauses or disables a destination. If it is paused already, its reason stays.
-- $1 name   $2 reason   $3 did the destination ask for it?
insert into pillarbox.destinations (name, reason, disabled) values ($1, $2, $3)
on conflict (name) do nothing
