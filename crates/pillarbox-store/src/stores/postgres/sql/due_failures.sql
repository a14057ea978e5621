-- How many rows of an adopted table cannot be imported, up to a bound? And which of them are due again, those first that were
-- due first?
-- $1 adopted table   $2 layout   $3 how many   $4 the bound
-- Index: import_failures_due. Rows that failed with another layout are pruned soon.
select (select count(*) from (select from pillarbox.import_failures where adopted_table = $1 limit $4) as failed),
  coalesce(array_agg(event_id), '{}'), coalesce(array_agg(row_id), '{}')
from (
  select event_id, row_id from pillarbox.import_failures
  where adopted_table = $1 and next_attempt_at <= now() and layout = $2
  order by next_attempt_at limit $3
) as due
