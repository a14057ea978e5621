-- The ids of events that were there before, by their dedupe keys.
-- $1 namespaces   $2 topics   $3 dedupe keys
-- Index: outbox_events_dedupe.
select g.ord as place, e.id::text as id
from unnest($1::text[], $2::text[], $3::text[]) with ordinality as g (namespace, topic, dedupe_key, ord)
join pillarbox.outbox_events e
  on e.namespace = g.namespace and e.topic = g.topic and e.dedupe_key = g.dedupe_key and e.dedupe_key is not null
