-- Writes a new saga and its first lines of log in the caller's transaction. No row comes back if there is one already.
-- $1 name … $10 timeout_at, as in saga_save.sql   $11 … $15 the log, a line for each
-- $16 namespace   $17 topic   $18 secret of its attempts   $19 own token: these never change
-- Locks: the new row, and its id until the transaction ends.
with saga as (
  insert into pillarbox.sagas (
    name, id, status, path, attempt, tries, in_doubt, data, last_error, timeout_at, namespace, topic, attempt_secret,
    own_token
  ) values ($1::text, $2::text, $3::text, $4::text::jsonb, $5::int, $6::int, $7::int <> 0, $8::text::jsonb, $9::text,
    $10::text::timestamptz, $16::text, $17::text, $18::text, $19::text)
  on conflict (id, name) do nothing
  returning seq, id
), log as (
  insert into pillarbox.saga_log (saga, what, step, action, attempt, detail)
  select saga.seq, line.what, line.step, line.action, nullif(line.attempt, 0), line.detail
  from saga, unnest($11::text[], $12::text[], $13::text[], $14::int[], $15::text[])
    with ordinality as line (what, step, action, attempt, detail, place)
  order by line.place
)
select saga.seq as place, saga.id::text as id from saga
