-- The ids of events that were there before, by their dedupe keys.
-- ?1 a JSON array of [namespace, topic, dedupe key]
-- Index: outbox_events_dedupe.
select g.key as place, e.id
from json_each(?1) as g
cross join outbox_events as e
  on e.namespace = g.value ->> 0 and e.topic = g.value ->> 1 and e.dedupe_key = g.value ->> 2
  and e.dedupe_key is not null
