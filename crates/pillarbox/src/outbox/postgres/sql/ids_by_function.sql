-- Which of these ids are there already, in what the role may enqueue?
-- $1 ids
-- Index: the primary key.
select 0::bigint as place, taken::text as id from pillarbox.ids_taken($1::uuid[]) as taken
