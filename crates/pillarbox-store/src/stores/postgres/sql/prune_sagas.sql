-- Removes sagas that ended long ago. Returns how many.
-- $1 namespaces, or null for all   $2 how long they are kept   $3 how many
select pillarbox.prune_sagas($1, $2, $3)
