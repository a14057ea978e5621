-- Writes down how a saga went on that the caller's transaction holds, and the lines of log that say so.
-- $1 name   $2 id   $3 status   $4 path   $5 attempt   $6 tries   $7 in_doubt   $8 data   $9 last_error   $10 timeout_at
-- $11 … $15 the log, a line for each
-- Index: the primary key.
with saga as (
  update pillarbox.sagas s set
    status = $3::text, path = $4::text::jsonb, attempt = $5::int, tries = $6::int, in_doubt = $7::int <> 0,
    data = $8::text::jsonb, last_error = $9::text, timeout_at = $10::text::timestamptz, updated_at = clock_timestamp()
  where s.id = $2::text and s.name = $1::text
  returning s.seq, s.id
), log as (
  insert into pillarbox.saga_log (saga, what, step, action, attempt, detail)
  select saga.seq, line.what, line.step, line.action, nullif(line.attempt, 0), line.detail
  from saga, unnest($11::text[], $12::text[], $13::text[], $14::int[], $15::text[])
    with ordinality as line (what, step, action, attempt, detail, place)
  order by line.place
)
select saga.seq as place, saga.id::text as id from saga
