-- The migrations that this file has, and the checksum of each as it was applied.
create table if not exists pillarbox_migrations (
  version    integer primary key,
  name       text not null,
  checksum   text,
  applied_at text not null default (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now'))
) strict
