-- Writes down how a saga went on.
-- ?1 name   ?2 id   ?3 status   ?4 path   ?5 attempt   ?6 tries   ?7 in_doubt   ?8 data   ?9 last_error   ?10 timeout_at
-- Index: the one on id and name.
update pillarbox_sagas set
  status = ?3, path = ?4, attempt = ?5, tries = ?6, in_doubt = ?7, data = ?8, last_error = ?9, timeout_at = ?10,
  updated_at = strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
where id = ?2 and name = ?1
returning seq
