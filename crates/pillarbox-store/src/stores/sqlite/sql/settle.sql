-- Writes verdicts to the rows that are still held under their claim, and returns them.
-- ?1 worker   ?2 a JSON array of {id, claim, verdict, wait, reason, destination, max_attempts,
--    unordered}   verdict: delivered, retry, release, suspect or dead   wait: such as '+1.500 seconds'
-- Index: the one on id.
--
-- A suspect stays in processing with a lease that no worker holds. So it cannot be settled, and is claimed like a row of a
-- dead worker when the lease expires.
with given as materialized (
  select value ->> 'id' as id, value ->> 'claim' as claim, value ->> 'verdict' as verdict,
    strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', value ->> 'wait') as later, value ->> 'reason' as reason,
    value ->> 'destination' as destination, value ->> 'max_attempts' as max_attempts,
    value ->> 'unordered' as unordered
  from json_each(?2)
)
update outbox_events
set status = case g.verdict
      when 'delivered' then 'delivered' when 'dead' then 'dead' when 'suspect' then 'processing' else 'pending'
    end,
    attempts = case g.verdict when 'release' then max(attempts - 1, 0) else attempts end,
    next_attempt_at = case when g.verdict in ('retry', 'release') then g.later else next_attempt_at end,
    locked_by = case g.verdict when 'suspect' then '00000000-0000-0000-0000-000000000000' end,
    claim_id = case g.verdict when 'suspect' then '00000000-0000-0000-0000-000000000000' end,
    locked_until = case g.verdict when 'suspect' then g.later end,
    delivered_at = case g.verdict when 'delivered' then strftime('%Y-%m-%dT%H:%M:%f000Z', 'now') end,
    last_error = coalesce(g.reason, last_error),
    destination = coalesce(g.destination, outbox_events.destination),
    max_attempts = coalesce(g.max_attempts, outbox_events.max_attempts),
    unordered = max(outbox_events.unordered, g.unordered),
    updated_at = strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
from given as g
where outbox_events.id = g.id and claim_id = g.claim and locked_by = ?1 and status = 'processing'
returning id
