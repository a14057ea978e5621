-- The migrations that this schema has.
create table if not exists pillarbox.migrations (
  version    int primary key,
  name       text not null,
  applied_at timestamptz not null default now()
);
