-- Writes down how a saga went on.
-- ?1 name … ?14 own token, in the order of the columns
-- Index: the one on id and name.
update pillarbox_sagas set
  namespace = ?3, topic = ?4, status = ?5, path = ?6, attempt = ?7, tries = ?8, in_doubt = ?9, data = ?10,
  last_error = ?11, timeout_at = ?12, attempt_token = ?13, own_token = ?14, updated_at = strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
where id = ?2 and name = ?1
returning seq
