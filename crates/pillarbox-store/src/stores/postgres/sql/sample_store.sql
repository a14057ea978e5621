-- Stores a sample, unless another worker's turn has begun. Without one, only the cap changes: the sample took too long.
-- $1 worker   $2 the sample   $3 the time of its snapshot   $4 when the next is due   $5 its cap
-- Locks: the sample's row.
update pillarbox.samples
set sample = coalesce($2::jsonb, sample), taken_at = coalesce($3, taken_at), due_at = now() + $4, cap = $5
where worker = $1
