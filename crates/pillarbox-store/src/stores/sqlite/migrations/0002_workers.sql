-- Who is alive, who takes care of the rows with a key, and where nothing is sent.

-- One lane a namespace, so one owner a namespace.
create table pillarbox_lanes (
  namespace    text primary key,
  owner        text not null,
  leased_until text not null,
  leaving      integer not null default 0 -- is it somebody else's turn?
) strict;

create table pillarbox_workers (
  id         text primary key,
  host       text not null,
  version    text not null,
  scope      text, -- namespaces as a JSON array; null for all
  ttl        text not null, -- after how long without a word it counts as gone, such as '+10.000 seconds'
  started_at text not null default (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
  seen_at    text not null default (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
  claimed    integer not null default 0,
  delivered  integer not null default 0,
  failed     integer not null default 0
) strict;

-- Destinations that are paused: nothing is claimed for them, whoever restarts.
create table pillarbox_paused (
  destination text primary key,
  since       text not null default (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
  reason      text not null
) strict;
