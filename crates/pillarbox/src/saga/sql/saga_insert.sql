-- Writes a new saga and its first lines of log in the caller's transaction. No row comes back if there is one already.
-- $1 name … $14 own token, in the order of the columns   $15 … $19 the log, a line for each
-- Locks: the new row, and its id until the transaction ends.
with saga as (
  insert into pillarbox.sagas (
    name, id, namespace, topic, status, path, attempt, tries, in_doubt, data, last_error, timeout_at,
    attempt_token, own_token
  ) values ($1::text, $2::text, $3::text, $4::text, $5::text, $6::text::jsonb, $7::int, $8::int, $9::int <> 0,
    $10::text::jsonb, $11::text, $12::text::timestamptz, $13::text, $14::text)
  on conflict (id, name) do nothing
  returning seq, id
), log as (
  insert into pillarbox.saga_log (saga, what, step, action, attempt, detail)
  select saga.seq, line.what, line.step, line.action, nullif(line.attempt, 0), line.detail
  from saga, unnest($15::text[], $16::text[], $17::text[], $18::int[], $19::text[])
    with ordinality as line (what, step, action, attempt, detail, place)
  order by line.place
)
select saga.seq as place, saga.id::text as id from saga
