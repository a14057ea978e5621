-- The outbox: one row is one event on its way to one destination, and carries its own state.
--
-- Times are text, UTC with microseconds, all of one width: they compare as text, people can read them, and
-- any language can write them. Ids are text too, hyphenated and in lower case.
-- A plain INSERT needs namespace, topic and payload; the rest has a default.
create table outbox_events (
  rowno            integer primary key autoincrement, -- never given twice, whatever is deleted
  id               text not null unique default (
    -- A UUID of version 7: milliseconds, then chance.
    lower(
      substr(printf('%012x', cast((julianday('now') - 2440587.5) * 86400000.0 as integer)), 1, 8)
      || '-' || substr(printf('%012x', cast((julianday('now') - 2440587.5) * 86400000.0 as integer)), 9, 4)
      || '-7' || substr(hex(randomblob(2)), 2)
      || '-' || substr('89ab', 1 + (random() & 3), 1) || substr(hex(randomblob(2)), 2)
      || '-' || hex(randomblob(6))
    )
  ),
  seq              integer, -- the order of insertion: rowno, or the first row's in a family
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
  -- SQLite has one lane, 0, for the rows that keep to their place among the others of their key.
  lane             integer generated always as (iif(ordering_key is not null and not unordered, 0, null)) virtual,
  severity         text,
  payload          text not null,
  body             blob,
  content_type     text,
  content_encoding text,
  headers          text not null default '{}',
  destination      text check (destination <> ''), -- null until routing knows
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

  -- One row that cannot be read would stand in the way of every claim, so it is refused when it is written.
  constraint id_is_a_uuid_in_lower_case check (
    id like '________-____-____-____-____________' and length(replace(id, '-', '')) = 32
    and replace(id, '-', '') not glob '*[^0-9a-f]*'
  ),
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

-- `seq` cannot be a default, because a default does not know the row's number.
create trigger outbox_events_takes_its_place after insert on outbox_events
when new.seq is null
begin
  update outbox_events set seq = new.rowno where rowno = new.rowno;
end;

-- `seq is not null` keeps a row out of these until it has its place: one write of the index, not three.
-- What a source is comes first (where to, who), then whether a row keeps to a lane, then the order: a claim reads
-- what it takes and nothing of another source.

-- What was never made to wait: due since it was written, in the order of insertion.
create index outbox_events_fresh on outbox_events (coalesce(destination, ''), namespace, lane, seq)
  where status = 'pending' and next_attempt_at <= created_at and seq is not null;

-- What waits for a later time: tried before, released, scheduled or retried by a person.
create index outbox_events_waiting on outbox_events (coalesce(destination, ''), namespace, lane, next_attempt_at, seq)
  where status = 'pending' and next_attempt_at > created_at and seq is not null;

-- What keeps to its place among the others of its key and is not delivered. The first of a key decides for all.
create index outbox_events_keyed on outbox_events (coalesce(destination, ''), namespace, ordering_key, seq)
  where lane = 0 and status in ('pending', 'processing', 'dead') and seq is not null;

-- What is in somebody's hands, by the end of the lease.
-- A row in processing without an end was written by somebody else, and nobody comes back for it.
create index outbox_events_leased on outbox_events (coalesce(locked_until, ''))
  where status = 'processing';

-- What a sweep looks for: pending rows that no claim takes, because their attempts are used up.
create index outbox_events_tried on outbox_events (attempts)
  where status = 'pending' and attempts > 0 and max_attempts is null;
create index outbox_events_exhausted on outbox_events (seq)
  where status = 'pending' and attempts >= max_attempts;

-- What waits for something other than time: for a route, or for somebody who lets its key go on.
create index outbox_events_unrouted on outbox_events (seq)
  where status = 'pending' and destination = 'unrouted';
create index outbox_events_blocking on outbox_events (seq)
  where status = 'dead' and lane = 0;
create index outbox_events_failing on outbox_events (seq)
  where status = 'pending' and attempts > 0 and lane = 0;

-- What people look for: the newest, what was given up on and where, and what carries a status that is not ours.
create index outbox_events_newest on outbox_events (seq)
  where seq is not null;
create index outbox_events_dead on outbox_events (seq)
  where status = 'dead';
create index outbox_events_dead_there on outbox_events (coalesce(destination, ''), namespace)
  where status = 'dead';
create index outbox_events_unknown on outbox_events (seq)
  where status not in ('pending', 'processing', 'delivered', 'dead');

-- The rows of one event.
create index outbox_events_family on outbox_events (parent_id)
  where parent_id is not null;

-- A second event with the same key is "already enqueued".
create unique index outbox_events_dedupe on outbox_events (namespace, topic, dedupe_key)
  where dedupe_key is not null;
