-- Writes down how a saga went on that the caller's transaction holds, and the lines of log that say so.
-- $1 name … $14 own token, in the order of the columns   $15 … $19 the log, a line for each
-- Index: the primary key.
with saga as (
  update pillarbox.sagas s set
    namespace = $3::text, topic = $4::text, status = $5::text, path = $6::text::jsonb, attempt = $7::int,
    tries = $8::int, in_doubt = $9::int <> 0, data = $10::text::jsonb, last_error = $11::text,
    timeout_at = $12::text::timestamptz, attempt_token = $13::text, own_token = $14::text, updated_at = clock_timestamp()
  where s.id = $2::text and s.name = $1::text
  returning s.seq, s.id
), log as (
  insert into pillarbox.saga_log (saga, what, step, action, attempt, detail)
  select saga.seq, line.what, line.step, line.action, nullif(line.attempt, 0), line.detail
  from saga, unnest($15::text[], $16::text[], $17::text[], $18::int[], $19::text[])
    with ordinality as line (what, step, action, attempt, detail, place)
  order by line.place
)
select saga.seq as place, saga.id::text as id from saga
