-- A saga as JSON. No other transaction writes while the caller's may.
-- ?1 name   ?2 id
-- Index: the one on id and name.
select json_object(
  'namespace', namespace, 'topic', topic, 'status', status, 'path', json(path), 'attempt', attempt, 'tries', tries,
  'in_doubt', json(iif(in_doubt, 'true', 'false')), 'data', json(data), 'last_error', last_error,
  'attempt_secret', attempt_secret, 'own_token', own_token
) as saga
from pillarbox_sagas where id = ?2 and name = ?1
