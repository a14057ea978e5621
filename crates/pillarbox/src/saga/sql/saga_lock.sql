-- A saga as JSON, held until the transaction ends: what else arrives for it waits here.
-- $1 name   $2 id
-- Index: the primary key.
select s.seq as place, json_build_object(
  'namespace', s.namespace, 'topic', s.topic, 'status', s.status, 'path', s.path, 'attempt', s.attempt,
  'tries', s.tries, 'in_doubt', s.in_doubt, 'data', s.data, 'last_error', s.last_error,
  'attempt_secret', s.attempt_secret, 'own_token', s.own_token
)::text as id
from pillarbox.sagas s
where s.id = $2::text and s.name = $1::text
for update
