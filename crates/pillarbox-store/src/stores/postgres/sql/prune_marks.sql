-- Removes old marks of all consumers. Returns before which consumer to go on, how many, and whether there is more.
-- $1 before this consumer, or null   $2 how long they are kept   $3 how many
select before, gone, more from pillarbox.prune_marks($1, $2, $3)
