-- Makes rows of an adopted table due that cannot be imported. They come before all others.
-- $1 adopted table   $2 their ids, or null for all   $3 how many
-- Locks: their failures, which a round of the importer may hold for a moment.
-- Index: import_failures_due. Without $2 the last ones come first, so that those that are due already are not read.
with chosen as materialized (
  select event_id from pillarbox.import_failures
  where adopted_table = $1 and case when $2::text[] is null then next_attempt_at > '-infinity' else row_id = any($2) end
  order by next_attempt_at desc limit $3
  for update
)
update pillarbox.import_failures f set next_attempt_at = '-infinity'
where f.adopted_table = $1 and f.event_id = any(array(select event_id from chosen))
returning f.row_id
