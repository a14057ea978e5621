-- The outbox in SQLite, as the migrations leave it. Written by `UPDATE_SCHEMA=1 cargo test -p pillarbox-store --all-features schema`.

CREATE TABLE pillarbox_migrations (
  version    integer primary key,
  name       text not null,
  checksum   text,
  applied_at text not null default (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now'))
) strict;

CREATE TABLE outbox_events (
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

CREATE TRIGGER outbox_events_set_seq after insert on outbox_events
when new.seq is null
begin
  update outbox_events set seq = new.rowno where rowno = new.rowno;
end;

CREATE INDEX outbox_events_fresh on outbox_events (coalesce(destination, ''), namespace, lane, seq)
  where status = 'pending' and next_attempt_at <= created_at and seq is not null;

CREATE INDEX outbox_events_waiting on outbox_events (coalesce(destination, ''), namespace, lane, next_attempt_at, seq)
  where status = 'pending' and next_attempt_at > created_at and seq is not null;

CREATE INDEX outbox_events_keyed on outbox_events (coalesce(destination, ''), namespace, ordering_key, seq)
  where lane = 0 and status in ('pending', 'processing', 'dead') and seq is not null;

CREATE INDEX outbox_events_leased on outbox_events (coalesce(locked_until, ''))
  where status = 'processing';

CREATE INDEX outbox_events_tried on outbox_events (attempts)
  where status = 'pending' and attempts > 0 and max_attempts is null;

CREATE INDEX outbox_events_exhausted on outbox_events (seq)
  where status = 'pending' and attempts >= max_attempts;

CREATE INDEX outbox_events_unrouted on outbox_events (seq)
  where status = 'pending' and destination = 'unrouted';

CREATE INDEX outbox_events_blocking on outbox_events (seq)
  where status = 'dead' and lane = 0;

CREATE INDEX outbox_events_failing on outbox_events (seq)
  where status = 'pending' and attempts > 0 and lane = 0;

CREATE INDEX outbox_events_newest on outbox_events (seq)
  where seq is not null;

CREATE INDEX outbox_events_dead on outbox_events (seq)
  where status = 'dead';

CREATE INDEX outbox_events_dead_there on outbox_events (coalesce(destination, ''), namespace)
  where status = 'dead';

CREATE INDEX outbox_events_unknown on outbox_events (seq)
  where status not in ('pending', 'processing', 'delivered', 'dead');

CREATE INDEX outbox_events_delivered on outbox_events (namespace, delivered_at)
  where status = 'delivered';

CREATE INDEX outbox_events_family on outbox_events (parent_id)
  where parent_id is not null;

CREATE UNIQUE INDEX outbox_events_dedupe on outbox_events (namespace, topic, dedupe_key)
  where dedupe_key is not null;

CREATE TABLE pillarbox_lanes (
  namespace    text not null,
  destination  text not null, -- '' for none yet
  owner        text not null,
  leased_until text not null,
  leaving      integer not null default 0, -- its owner claims nothing more, and releases it for another worker
  primary key (namespace, destination)
) strict;

CREATE TABLE pillarbox_workers (
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

CREATE TABLE pillarbox_paused (
  destination text primary key,
  since       text not null default (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
  reason      text not null,
  disabled    integer not null default 0 -- the destination asked for no more events; otherwise an operator paused it
) strict;

CREATE TABLE pillarbox_inbox (
  consumer   text not null,
  event_id   text not null,
  handled_at text not null default (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
  primary key (consumer, event_id)
) strict, without rowid;

CREATE INDEX pillarbox_inbox_old on pillarbox_inbox (consumer, handled_at);

CREATE INDEX pillarbox_inbox_oldest on pillarbox_inbox (handled_at);

CREATE TABLE pillarbox_sagas (
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

CREATE UNIQUE INDEX pillarbox_sagas_id on pillarbox_sagas (id, name);

CREATE INDEX pillarbox_sagas_ended on pillarbox_sagas (updated_at) where status in ('completed', 'compensated');

CREATE INDEX pillarbox_sagas_open on pillarbox_sagas (status, seq) where status in ('running', 'compensating');

CREATE TABLE pillarbox_saga_log (
  seq     integer primary key autoincrement,
  saga    integer not null references pillarbox_sagas (seq) on delete cascade,
  at      text not null default (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
  what    text not null,
  step    text,
  action  text,
  attempt integer,
  detail  text
) strict;

CREATE INDEX pillarbox_saga_log_saga on pillarbox_saga_log (saga, seq);

CREATE TABLE pillarbox_audit (
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

CREATE TRIGGER pillarbox_audit_is_not_updated before update on pillarbox_audit
begin
  select raise(abort, 'the audit is not changed: lines are only added');
end;

CREATE TRIGGER pillarbox_audit_is_not_deleted before delete on pillarbox_audit
begin
  select raise(abort, 'the audit is not changed: lines are only added');
end;

CREATE TABLE pillarbox_totals (
  what  text primary key,
  count integer not null
) strict;
