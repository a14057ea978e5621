-- The newest migration of this file, and whether outbox_events exists. Fails if there is no table of migrations.
select coalesce(max(version), 0) as version,
  exists (select 1 from sqlite_master where type = 'table' and name = 'outbox_events') as there
from pillarbox_migrations
