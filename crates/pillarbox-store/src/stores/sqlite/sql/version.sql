-- The migrations of this file, and whether outbox_events exists; a row of nulls without migrations. Fails if there is no table
-- of migrations. All its columns, because earlier builds had no checksum.
select m.*, exists (select 1 from sqlite_master where type = 'table' and name = 'outbox_events') as there
from (select 1) left join pillarbox_migrations m
