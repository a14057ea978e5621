-- Sagas. Written in the transactions of the application that runs them.

create table pillarbox_sagas (
  seq        integer primary key autoincrement,
  name       text not null,
  id         text not null,
  namespace  text not null, -- where its timeouts and what people ask of it are sent
  topic      text not null,
  status     text not null check (status in ('running', 'compensating', 'completed', 'compensated')),
  path       text not null, -- the steps that were begun and not undone, as a JSON array; the last is the current one
  attempt    integer not null, -- which try at the current step
  tries      integer not null, -- how many of them count against its limit
  in_doubt   integer not null default 0, -- was a try at the current step left without its answer?
  data       text not null,
  last_error text,
  timeout_at text,
  created_at text not null default (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
  updated_at text not null default (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now'))
) strict;

create unique index pillarbox_sagas_id on pillarbox_sagas (id, name);
create index pillarbox_sagas_open on pillarbox_sagas (status, seq) where status in ('running', 'compensating');

-- What happened to each; goes with its saga where foreign keys are on.
create table pillarbox_saga_log (
  seq     integer primary key autoincrement,
  saga    integer not null references pillarbox_sagas (seq) on delete cascade,
  at      text not null default (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
  what    text not null,
  step    text,
  action  text,
  attempt integer,
  detail  text
) strict;

create index pillarbox_saga_log_saga on pillarbox_saga_log (saga, seq);
