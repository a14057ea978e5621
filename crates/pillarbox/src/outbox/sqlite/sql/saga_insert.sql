-- Writes a new saga in the caller's transaction. No row comes back if there is one already.
-- ?1 name … ?10 timeout_at, as in saga_save.sql
-- ?11 namespace   ?12 topic   ?13 secret of its attempts   ?14 own token: these never change
insert into pillarbox_sagas (
  name, id, status, path, attempt, tries, in_doubt, data, last_error, timeout_at, namespace, topic, attempt_secret,
  own_token
) values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
on conflict (id, name) do nothing
returning seq
