-- The minimum columns that an outbox needs, a primary key and one partial index.
create table plain_outbox (
  id              uuid primary key,
  namespace       text not null,
  topic           text not null,
  tenant_id       uuid,
  dedupe_key      text,
  payload         jsonb not null,
  status          text not null default 'pending',
  attempts        int not null default 0,
  next_attempt_at timestamptz not null default now(),
  locked_by       uuid,
  locked_until    timestamptz,
  last_error      text,
  created_at      timestamptz not null default now(),
  updated_at      timestamptz not null default now()
);

create index plain_outbox_due on plain_outbox (next_attempt_at) where status = 'pending';
