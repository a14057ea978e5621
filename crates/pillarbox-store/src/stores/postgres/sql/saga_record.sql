-- Sagas for operators, without their data.
-- Index: the one on seq, or sagas_open.
select s.name, s.id, s.seq, s.namespace, s.topic, s.status,
  case when s.status in ('running', 'compensating') then s.path ->> -1 end as step,
  s.attempt, s.path, s.last_error, s.timeout_at, s.created_at, s.updated_at, /*data*/null::jsonb as data
from pillarbox.sagas s
