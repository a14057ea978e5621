-- Makes it a worker's turn to take the sample, if that is due. Returns up to how many rows it counts.
-- $1 worker   $2 for how long   $3 the cap of the first sample
-- Locks: the sample's row.
insert into pillarbox.samples as s (worker, due_at, cap) values ($1, now() + $2, $3)
on conflict (one) do update set worker = excluded.worker, due_at = excluded.due_at where s.due_at <= now()
returning s.cap
