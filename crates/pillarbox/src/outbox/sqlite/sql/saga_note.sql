-- Writes lines to the log of a saga.
-- ?1 name   ?2 id   ?3 the lines, as a JSON array of [what, step, action, attempt, detail]
-- Index: the one on id and name.
insert into pillarbox_saga_log (saga, what, step, action, attempt, detail)
select s.seq, line.value ->> 0, line.value ->> 1, line.value ->> 2, line.value ->> 3, line.value ->> 4
from pillarbox_sagas s, json_each(?3) line
where s.id = ?2 and s.name = ?1
order by line.key
