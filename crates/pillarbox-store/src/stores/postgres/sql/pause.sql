-- Pauses a destination. If it is paused already, its reason stays.
-- $1 name   $2 reason
insert into pillarbox.destinations (name, reason) values ($1, $2)
on conflict (name) do nothing
