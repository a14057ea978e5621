-- How many rows of an adopted table are in progress, up to a bound. Rows whose write-back the table rejects are not.
-- $1 adopted table   $2 the bound
-- Index: adopted_open.
select count(*) from (
  select from pillarbox.adopted where adopted_table = $1 and not ended and not rejected limit $2
) as open
