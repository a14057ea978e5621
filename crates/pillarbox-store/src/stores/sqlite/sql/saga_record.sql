-- Sagas for operators, without their data.
select name, id, seq, namespace, topic, status,
  iif(status in ('running', 'compensating'), path ->> '$[#-1]', null) as step,
  attempt, path, last_error, timeout_at, created_at, updated_at, /*data*/null as data
from pillarbox_sagas
