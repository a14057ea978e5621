-- The whole outbox. Nothing is released, so this migration may still change; a later one never does.
--
--   1. outbox_events           one row is one event on its way to one destination
--   2. workers, lanes, pauses  what dispatchers share
--   3. inbox                   what consumers have handled
--   4. sagas, saga_log         sagas and their history
--   5. audit                   who changed what
--   6. totals                  what is counted, for metrics
--
-- Times are text, in UTC with microseconds and of one width. So they compare as text, and every language can write them.
-- Ids are text too, hyphenated and in lower case.

-- 1. Events
-- ---------

-- A plain INSERT needs namespace, topic and payload. The other columns have defaults.
create table outbox_events (
  rowno            integer primary key autoincrement, -- never reused, even after a delete
  id               text not null unique default (
    -- A UUID of version 7: milliseconds, then random bits.
    lower(
      substr(printf('%012x', cast((julianday('now') - 2440587.5) * 86400000.0 as integer)), 1, 8)
      || '-' || substr(printf('%012x', cast((julianday('now') - 2440587.5) * 86400000.0 as integer)), 9, 4)
      || '-7' || substr(hex(randomblob(2)), 2)
      || '-' || substr('89ab', 1 + (random() & 3), 1) || substr(hex(randomblob(2)), 2)
      || '-' || hex(randomblob(6))
    )
  ),
  seq              integer, -- the order of insertion: rowno, or that of the family's first row
  parent_id        text,
  namespace        text not null check (namespace <> ''),
  topic            text not null check (topic <> ''),
  event_type       text,
  event_version    integer not null default 1,
  aggregate_type   text,
  aggregate_id     text,
  tenant_id        text,
  dedupe_key       text,
  ordering_key     text check (ordering_key <> ''),
  unordered        integer not null default 0, -- has it left its lane?
  -- SQLite has one lane, 0, for the rows that keep the order of their key.
  lane             integer generated always as (iif(ordering_key is not null and not unordered, 0, null)) virtual,
  severity         text,
  payload          text not null,
  body             blob,
  content_type     text,
  content_encoding text,
  headers          text not null default '{}',
  destination      text check (destination <> ''), -- null until routed
  status           text not null default 'pending',
  attempts         integer not null default 0,
  max_attempts     integer,
  next_attempt_at  text not null default (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
  locked_by        text,
  locked_until     text,
  claim_id         text,
  last_error       text,
  created_at       text not null default (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
  updated_at       text not null default (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
  delivered_at     text,

  -- One row that cannot be decoded would fail every claim, so the insert is rejected.
  constraint id_is_a_uuid_in_lower_case check (
    id like '________-____-____-____-____________' and length(replace(id, '-', '')) = 32
    and replace(id, '-', '') not glob '*[^0-9a-f]*'
  ),
  -- Ids of version 8 are derived, by inboxes too: such an event could suppress another as a duplicate.
  constraint ids_of_version_8_are_derived check (substr(id, 15, 1) <> '8'),
  constraint tenant_id_is_a_uuid_in_lower_case check (
    tenant_id like '________-____-____-____-____________' and length(replace(tenant_id, '-', '')) = 32
    and replace(tenant_id, '-', '') not glob '*[^0-9a-f]*'
  ),
  constraint payload_is_json check (json_valid(payload)),
  constraint headers_are_a_json_object check (json_valid(headers) and json_type(headers) = 'object'),
  constraint times_are_utc_with_microseconds check (
    next_attempt_at glob '[0-9][0-9][0-9][0-9]-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z'
    and created_at glob '[0-9][0-9][0-9][0-9]-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z'
  )
) strict;

-- `seq` is set by a trigger, because a default cannot refer to another column.
create trigger outbox_events_set_seq after insert on outbox_events
when new.seq is null
begin
  update outbox_events set seq = new.rowno where rowno = new.rowno;
end;

-- `seq is not null` keeps a row out of these indexes until the trigger has run: one write of each index, not three.
-- The backlog comes first (destination, namespace), then the lane, then the order. So a claim reads no other backlog.

-- Rows that are due since they were inserted, in the order of insertion.
create index outbox_events_fresh on outbox_events (coalesce(destination, ''), namespace, lane, seq)
  where status = 'pending' and next_attempt_at <= created_at and seq is not null;

-- Rows that wait for a later time: tried before, released, scheduled or retried by an operator.
create index outbox_events_waiting on outbox_events (coalesce(destination, ''), namespace, lane, next_attempt_at, seq)
  where status = 'pending' and next_attempt_at > created_at and seq is not null;

-- Undelivered rows with a lane, key by key. The first row of a key decides whether the key is blocked.
create index outbox_events_keyed on outbox_events (coalesce(destination, ''), namespace, ordering_key, seq)
  where lane = 0 and status in ('pending', 'processing', 'dead') and seq is not null;

-- Rows in flight, by the end of the lease. A processing row without a lease was not written by Pillarbox, so it counts as
-- expired.
create index outbox_events_leased on outbox_events (coalesce(locked_until, ''))
  where status = 'processing';

-- Rows that a sweep ends: pending, without attempts left.
create index outbox_events_tried on outbox_events (attempts)
  where status = 'pending' and attempts > 0 and max_attempts is null;
create index outbox_events_exhausted on outbox_events (seq)
  where status = 'pending' and attempts >= max_attempts;

-- Unrouted rows, and rows that block or may block their key.
create index outbox_events_unrouted on outbox_events (seq)
  where status = 'pending' and destination = 'unrouted';
create index outbox_events_blocking on outbox_events (seq)
  where status = 'dead' and lane = 0;
create index outbox_events_failing on outbox_events (seq)
  where status = 'pending' and attempts > 0 and lane = 0;

-- Rows that operators look for: the newest, dead ones in all and by destination, and rows with an unknown status.
create index outbox_events_newest on outbox_events (seq)
  where seq is not null;
create index outbox_events_dead on outbox_events (seq)
  where status = 'dead';
create index outbox_events_dead_there on outbox_events (coalesce(destination, ''), namespace)
  where status = 'dead';
create index outbox_events_unknown on outbox_events (seq)
  where status not in ('pending', 'processing', 'delivered', 'dead');

-- Delivered rows by namespace and time, for retention.
create index outbox_events_delivered on outbox_events (namespace, delivered_at)
  where status = 'delivered';

-- The siblings of an event.
create index outbox_events_family on outbox_events (parent_id)
  where parent_id is not null;

-- A second event with the same dedupe key is a duplicate.
create unique index outbox_events_dedupe on outbox_events (namespace, topic, dedupe_key)
  where dedupe_key is not null;

-- 2. Workers, lanes and pauses
-- ----------------------------

-- SQLite has one lane per backlog, so a backlog has one owner.
create table pillarbox_lanes (
  namespace    text not null,
  destination  text not null, -- '' for none yet
  owner        text not null,
  leased_until text not null,
  leaving      integer not null default 0, -- its owner claims nothing more, and releases it for another worker
  primary key (namespace, destination)
) strict;

-- The last heartbeat of each worker.
create table pillarbox_workers (
  id         text primary key,
  host       text not null,
  version    text not null,
  scope      text, -- namespaces as a JSON array; null for all
  ttl        text not null, -- dead after this long without a heartbeat, such as '+10.000 seconds'
  started_at text not null default (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
  seen_at    text not null default (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
  claimed    integer not null default 0,
  delivered  integer not null default 0,
  failed     integer not null default 0,
  breakers   text not null default '{}', -- those not closed: {"destination": {"state": …, "since": …, "reason": …}}
  serves     text not null default '{}' -- {"destinations": […], or null for all, "unreachable": […], "routes": …}
) strict;

-- Destinations that are paused or disabled until an operator resumes them.
create table pillarbox_paused (
  destination text primary key,
  since       text not null default (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
  reason      text not null,
  disabled    integer not null default 0 -- the destination asked for no more events; otherwise an operator paused it
) strict;

-- 3. Inbox
-- --------

-- What consumers have handled, so that a duplicate has no effect.
create table pillarbox_inbox (
  consumer   text not null,
  event_id   text not null,
  handled_at text not null default (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
  primary key (consumer, event_id)
) strict, without rowid;

-- What a consumer prunes.
create index pillarbox_inbox_old on pillarbox_inbox (consumer, handled_at);
create index pillarbox_inbox_oldest on pillarbox_inbox (handled_at);

-- 4. Sagas
-- --------

-- Written in the transactions of the application that runs them.

create table pillarbox_sagas (
  seq        integer primary key autoincrement,
  name       text not null,
  id         text not null,
  namespace  text not null, -- where its timeouts and the requests of operators are sent
  topic      text not null,
  status     text not null check (status in ('running', 'compensating', 'completed', 'compensated')),
  path       text not null, -- the steps that were started and not compensated, as a JSON array; the last is current
  attempt    integer not null, -- the current try at this step
  tries      integer not null, -- how many of its tries count against the limit
  in_doubt   integer not null default 0, -- did a try at the current step end without an answer?
  data       text not null,
  last_error text,
  timeout_at text,
  attempt_secret text not null, -- what the tokens of its tries are made from, which replies echo
  own_token  text not null, -- secret: what proves the saga's timeouts and the requests of operators
  created_at text not null default (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
  updated_at text not null default (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now'))
) strict;

create unique index pillarbox_sagas_id on pillarbox_sagas (id, name);
create index pillarbox_sagas_ended on pillarbox_sagas (updated_at) where status in ('completed', 'compensated');
create index pillarbox_sagas_open on pillarbox_sagas (status, seq) where status in ('running', 'compensating');

-- What happened to each saga. Deleted with it where foreign keys are on.
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

-- 5. Audit
-- --------

-- Who changed what, and why: docs/operations/audit.md. A line is written in the transaction of its change, and stays as it is.
create table pillarbox_audit (
  seq       integer primary key autoincrement,
  at        text not null default (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
  subject   text not null, -- the actor, as the program names it
  kind      text not null check (kind in ('operator', 'service', 'worker')),
  tenant_id text, -- set if the actor acted for one tenant
  action    text not null,
  objects   text not null, -- ids of rows, or names, as a JSON array; the first thousand
  count     integer not null,
  "before"  text,
  "after"   text,
  reason    text
) strict;

create trigger pillarbox_audit_is_not_updated before update on pillarbox_audit
begin
  select raise(abort, 'the audit is not changed: lines are only added');
end;

create trigger pillarbox_audit_is_not_deleted before delete on pillarbox_audit
begin
  select raise(abort, 'the audit is not changed: lines are only added');
end;

-- 6. Totals
-- ---------

-- How often each of these was done.
create table pillarbox_totals (
  what  text primary key,
  count integer not null
) strict;
