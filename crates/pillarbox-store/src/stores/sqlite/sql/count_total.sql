-- Counts what was done. ?1 what   ?2 how often
insert into pillarbox_totals (what, count) values (?1, ?2)
on conflict (what) do update set count = pillarbox_totals.count + excluded.count
