-- The newest migration that this outbox has seen, and whether the outbox is there.
-- No row if there is no table of migrations: it has to be asked for by name first.
select coalesce(max(version), 0) as version,
  exists (select 1 from sqlite_master where type = 'table' and name = 'outbox_events') as there
from pillarbox_migrations
