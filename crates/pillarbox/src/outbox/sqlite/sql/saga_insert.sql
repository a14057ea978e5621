-- Writes a new saga in the caller's transaction. No row comes back if there is one already.
-- ?1 name … ?14 own token, in the order of the columns
insert into pillarbox_sagas (
  name, id, namespace, topic, status, path, attempt, tries, in_doubt, data, last_error, timeout_at,
  attempt_token, own_token
) values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
on conflict (id, name) do nothing
returning seq
