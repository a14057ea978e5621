-- The migrations that this file has.
create table if not exists pillarbox_migrations (
  version    integer primary key,
  name       text not null,
  applied_at text not null default (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now'))
) strict
