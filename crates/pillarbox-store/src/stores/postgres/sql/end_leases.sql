-- Ends expired leases: rows that are still held under them get leases of their own, which ended at the same time.
-- $1 up to how many rows, or one lease
-- Locks: the leases and these rows; those locked by others are skipped. A lease stays if one of its rows is skipped.
-- Index: leases_until; then the primary key, written as in settle_delivered.sql for the same reason.
--
-- The claim of the rows does not change, so that a late settlement still finds them.
with expired as materialized (
  select claim_id, first_row, until, rows from (
    select claim_id, first_row, until, rows,
      sum(cardinality(rows)) over (order by until, claim_id, first_row rows unbounded preceding) as total
    from (
      select claim_id, first_row, until, rows from pillarbox.leases
      where until < now()
      order by until
      limit 1000
      for update skip locked
    ) as oldest
  ) as counted
  where total <= $1 or total = cardinality(rows)
), member as materialized (
  select claim_id, first_row, until, unnest(rows) as id from expired
), held as materialized (
  select m.* from member m cross join lateral (
    select from pillarbox.outbox_events e
    where e.id = m.id and e.claim_id = m.claim_id and e.status || '' = 'processing' and not e.own_lease
    limit 1
  ) as e
), locked as materialized (
  select e.id, h.until
  from pillarbox.outbox_events e join held h on e.id = h.id and e.claim_id = h.claim_id
  where e.id = any(array(select id from held)) and e.status || '' = 'processing' and not e.own_lease
  for update of e skip locked
), freed as (
  update pillarbox.outbox_events e
  set own_lease = true, locked_until = l.until
  from locked l
  where e.id = l.id
)
delete from pillarbox.leases l
using expired x
where l.claim_id = x.claim_id and l.first_row = x.first_row
  and (x.claim_id, x.first_row) not in (select claim_id, first_row from held where id not in (select id from locked))
