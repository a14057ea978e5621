-- The migrations that this schema has, and the checksum of each as it was applied.
create table if not exists pillarbox.migrations (
  version    int primary key,
  name       text not null,
  checksum   text,
  applied_at timestamptz not null default now()
);
