-- Pauses a destination. One that is paused keeps its reason.
-- $1 name   $2 reason
insert into pillarbox.destinations (name, reason) values ($1, $2)
on conflict (name) do nothing
