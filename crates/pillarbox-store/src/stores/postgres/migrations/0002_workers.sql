-- Who works on the outbox, who takes care of which lanes, and which destinations take nothing now.
-- docs/adr/0007-lanes.md says why lanes have owners.

-- The lanes of a namespace, divided into ranges: each has one owner at a time.
-- A claim of rows with a key locks the ranges it claims from for share; taking one over locks it for update.
create table pillarbox.lanes (
  namespace text collate "C" not null,
  number    int not null,
  -- Into how many ranges the lanes are divided, and into how many they should be: done when all are free.
  ranges    int not null check (ranges between 1 and 4096),
  wanted    int not null check (wanted between 1 and 4096),
  owner     uuid,
  until     timestamptz,
  -- It is somebody else's turn: nothing is claimed from it any more.
  leaving   boolean not null default false,
  primary key (namespace, number),
  check (number >= 0 and number < ranges)
) with (fillfactor = 50); -- renewed all the time, and none of it is indexed: room to do it in place

-- What each worker said of itself last.
create table pillarbox.workers (
  id          uuid primary key,
  host        text not null,
  version     text not null,
  scope       text[],
  started_at  timestamptz not null default now(),
  seen_at     timestamptz not null default now(),
  alive_until timestamptz not null,
  claimed     bigint not null default 0,
  delivered   bigint not null default 0,
  failed      bigint not null default 0
) with (fillfactor = 50);

-- Destinations that take nothing until a person resumes them.
create table pillarbox.destinations (
  name      text collate "C" primary key,
  paused_at timestamptz not null default now(),
  reason    text not null
);
