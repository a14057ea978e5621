-- The last lines of a saga's log, the latest first.
-- $1 name   $2 id   $3 how many
-- Index: the primary keys.
select l.seq, l.at, l.what, l.step, l.action, l.attempt, l.detail
from pillarbox.sagas s join pillarbox.saga_log l on l.saga = s.seq
where s.id = $2 and s.name = $1
order by l.seq desc
limit $3
