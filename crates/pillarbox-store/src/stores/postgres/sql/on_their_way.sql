-- How many rows of an adopted table are on their way, up to a bound.
-- $1 source   $2 the bound
-- Index: adopted_open.
select count(*) from (
  select from pillarbox.adopted where source = $1 and not ended limit $2
) as open
