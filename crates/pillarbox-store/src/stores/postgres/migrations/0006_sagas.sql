-- Sagas: docs/sagas.md, docs/adr/0015-sagas.md. Written in the transactions of the application that runs them.

create table pillarbox.sagas (
  -- Which kind, and which one: the application's own words. The id comes first, because people look for it alone.
  name       text collate "C" not null,
  id         text collate "C" not null,
  seq        bigint generated always as identity unique,
  -- Where its timeouts and what people ask of it are sent.
  namespace  text not null,
  topic      text not null,
  status     text collate "C" not null check (status in ('running', 'compensating', 'completed', 'compensated')),
  -- The steps that were begun and not undone; the last is the current one until the saga has ended.
  path       jsonb not null,
  -- Which try at the current step, and how many of them count against its limit.
  attempt    int not null,
  tries      int not null,
  -- Was a try at the current step left without its answer?
  in_doubt   boolean not null default false,
  data       jsonb not null,
  last_error text,
  timeout_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  primary key (id, name)
);

-- What is not over is what people look for.
create index sagas_open on pillarbox.sagas (status, seq) where status in ('running', 'compensating');

-- What happened to each; goes with its saga.
create table pillarbox.saga_log (
  saga    bigint not null references pillarbox.sagas (seq) on delete cascade,
  seq     bigint generated always as identity,
  at      timestamptz not null default clock_timestamp(),
  what    text not null,
  step    text,
  action  text,
  attempt int,
  detail  text,
  primary key (saga, seq)
);
