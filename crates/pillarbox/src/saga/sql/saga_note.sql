-- Writes lines to the log of a saga that the caller's transaction holds.
-- $1 name   $2 id   $3 … $7 the log, a line for each
-- Index: the primary key.
insert into pillarbox.saga_log (saga, what, step, action, attempt, detail)
select s.seq, line.what, line.step, line.action, nullif(line.attempt, 0), line.detail
from pillarbox.sagas s, unnest($3::text[], $4::text[], $5::text[], $6::int[], $7::text[])
  with ordinality as line (what, step, action, attempt, detail, place)
where s.id = $2::text and s.name = $1::text
order by line.place
returning seq as place, what as id
