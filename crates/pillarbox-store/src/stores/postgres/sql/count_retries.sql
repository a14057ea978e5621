-- Counts rows that an operator retried. $1 how many
-- Locks: the total, until the transaction ends.
select from pillarbox.count_retries($1::bigint)
