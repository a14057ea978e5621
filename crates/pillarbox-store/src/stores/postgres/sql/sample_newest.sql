-- The newest sample, and what is counted all the time. By the simple protocol, every fifteen seconds.
select s.sample::text as sample, extract(epoch from now() - s.taken_at)::float8 as age,
  extract(epoch from s.due_at - now())::float8 as due_in,
  coalesce((select count from pillarbox.totals where what = 'manual_retries'), 0) as manual_retries,
  extract(epoch from clock_timestamp())::float8 as now
from (values (true)) as here (one) left join pillarbox.samples s on s.one = here.one
