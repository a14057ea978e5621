-- Tables of others that are worked on as they are: docs/adopt.md, docs/adr/0013-adopted-tables.md.

-- Which row of a table that was adopted became which event, and what its own columns said when we last read or wrote
-- them.
create table pillarbox.adopted (
  source    text collate "C" not null,
  source_id text collate "C" not null,
  event_id  uuid not null,
  mark      text not null,
  -- It is over here: given up on, or deleted by a person. What was delivered is not noted any more.
  ended     boolean not null default false,
  -- The table has not been told yet, because somebody held its row locked.
  behind    boolean not null default false,
  primary key (source, source_id)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);

create unique index adopted_event on pillarbox.adopted (event_id);
create index adopted_open on pillarbox.adopted (source) where not ended;
create index adopted_behind on pillarbox.adopted (source) where behind;

-- Who imports from a table: one worker at a time, by a lease.
create table pillarbox.importers (
  source text collate "C" primary key,
  owner  uuid not null,
  until  timestamptz not null
);
