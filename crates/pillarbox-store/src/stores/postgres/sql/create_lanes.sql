-- Creates the lane ranges of a namespace.
-- $1 namespace   $2 how many
insert into pillarbox.lane_ranges (namespace, number, ranges, wanted)
select $1, number, $2, $2 from generate_series(0, $2 - 1) as number
on conflict (namespace, number) do nothing
