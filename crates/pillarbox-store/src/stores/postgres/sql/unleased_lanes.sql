-- Backlogs with lane ranges of which none is leased.
-- $1 how many
-- Reads the whole table. A worker runs it only after backlogs have become quiet.
select namespace, destination from pillarbox.lane_ranges
group by namespace, destination
having not bool_or(owner is not null and leased_until >= now())
limit $1
