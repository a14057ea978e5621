-- Claims rows whose lease expired. /*expired*/ is expired.sql, with its parameters; /*delivery*/ is delivery.sql.
-- $8 claim id   $9 lease   $10 bytes at most, or one row
-- Locks: the chosen rows for update. A row locked by others is skipped and ends the run of its key. Inserts the claim's
-- lease.
/*expired*/
, locked as materialized (
  select e.id from pillarbox.outbox_events e
  where e.id = any(array(select id from wanted)) and coalesce(e.own_until, 'infinity') < now()
    and e.attempts >= $2 and e.attempts < $3
  for update skip locked
), broken as materialized (
  select r.namespace, r.ordering_key, r.destination, min(r.seq) as seq
  from run r
  where r.unbroken and not exists (select from locked l where l.id = r.id)
  group by r.namespace, r.ordering_key, r.destination
), measured as (
  select w.id, w.size, sum(w.size) over (order by w.seq, w.id rows unbounded preceding) as total
  from wanted w
  join locked l on l.id = w.id
  where not exists (
    select from run r
    join broken b on b.namespace = r.namespace and b.ordering_key = r.ordering_key and b.destination = r.destination
    where r.id = w.id and r.own and b.seq < r.seq)
), chosen as materialized (
  select id from measured where total <= $10 or total = size
), lease as (
  insert into pillarbox.leases (claim_id, first_row, worker, until, rows)
  select $8, (array_agg(id))[1], $1, now() + $9, array_agg(id) from chosen having count(*) > 0
)
update pillarbox.outbox_events e
set attempts = greatest(e.attempts, 0) + 1, updated_at = now(), locked_by = $1, locked_until = now() + $9, claim_id = $8,
    own_lease = false
from chosen c
where e.id = c.id
returning /*delivery*/ e.id
