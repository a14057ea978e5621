-- The outbox: one row is one event on its way to one destination, and carries its own state.
-- docs/adr/0003-partial-indexes.md says why these indexes and no others.

-- A UUID of version 7 (milliseconds, then chance): new rows land at the end of the primary key, not all over it.
create function pillarbox.uuidv7() returns uuid
language sql volatile parallel safe
as $$
  select encode(
    set_bit(set_bit(
      overlay(uuid_send(gen_random_uuid())
        placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3) from 1 for 6),
      52, 1), 53, 1),
    'hex')::uuid
$$;

-- The lane of an ordering key, 0 to 4095. Frozen: rows that are written must agree with rows that were.
create function pillarbox.lane(key text) returns smallint
language sql immutable strict parallel safe
as $$
  select ('x' || substr(md5(key), 1, 3))::bit(12)::int::smallint
$$;

-- How many bytes a row's content has when it is read: those of the body, or about those of the JSON. Read off
-- the header; only what is compressed is unpacked to be measured.
create function pillarbox.size(payload jsonb, body bytea) returns bigint
language sql stable parallel safe
as $$
  select case
    when body is not null then octet_length(body)
    when pg_column_compression(payload) is null then pg_column_size(payload)
    else octet_length(payload::text)
  end::bigint
$$;

create sequence pillarbox.outbox_seq;

create table pillarbox.outbox_events (
  id               uuid primary key default pillarbox.uuidv7(),
  seq              bigint not null default nextval('pillarbox.outbox_seq'),
  parent_id        uuid,
  namespace        text collate "C" not null check (namespace <> ''),
  topic            text collate "C" not null check (topic <> ''),
  event_type       text,
  event_version    int not null default 1,
  aggregate_type   text,
  aggregate_id     text,
  tenant_id        uuid,
  dedupe_key       text collate "C",
  ordering_key     text collate "C",
  unordered        boolean not null default false,
  lane             smallint generated always as
                     (case when unordered then null else pillarbox.lane(ordering_key) end) stored,
  severity         text,
  payload          jsonb not null,
  body             bytea,
  content_type     text,
  content_encoding text,
  headers          jsonb not null default '{}' check (jsonb_typeof(headers) = 'object'),
  destination      text collate "C",
  status           text not null default 'pending',
  attempts         int not null default 0,
  max_attempts     int,
  next_attempt_at  timestamptz not null default now(),
  locked_by        uuid,
  locked_until     timestamptz,
  claim_id         uuid,
  last_error       text,
  created_at       timestamptz not null default now(),
  updated_at       timestamptz not null default now(),
  delivered_at     timestamptz
) with (
  -- Every event is updated twice; a table that waits for 20 % of it to be dead has long been slow.
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_insert_scale_factor = 0.1
);

alter sequence pillarbox.outbox_seq owned by pillarbox.outbox_events.seq;

-- Names are compared byte by byte (collate "C"): statements step from name to name through these indexes, and the
-- dispatcher compares them too. Where a row goes stands in them as '' while nobody knows.

-- What has no lane and was never made to wait: due since it was written, source by source in the order of insertion.
create index outbox_events_fresh on pillarbox.outbox_events (coalesce(destination, ''), namespace, seq)
  where status = 'pending' and next_attempt_at <= created_at and lane is null;

-- What has no lane and waits for a later time: tried before, released, scheduled or retried by a person.
create index outbox_events_waiting on pillarbox.outbox_events (coalesce(destination, ''), namespace, next_attempt_at, seq)
  where status = 'pending' and next_attempt_at > created_at and lane is null;

-- What has a lane and is not finished, key by key: the first row of a key says whether the key can go on.
create index outbox_events_keyed on pillarbox.outbox_events (coalesce(destination, ''), namespace, lane, ordering_key, seq)
  where lane is not null and status in ('pending', 'processing', 'dead');

-- What may hold up others of its key. Only failures are in it.
create index outbox_events_blocking on pillarbox.outbox_events (seq)
  where lane is not null and (status = 'dead' or (status = 'pending' and attempts > 0));

-- What is pending and has no attempts left, by the row's own limit or by the dispatcher's. Next to nothing is in them.
create index outbox_events_exhausted on pillarbox.outbox_events (seq)
  where status = 'pending' and attempts >= max_attempts;
create index outbox_events_tried on pillarbox.outbox_events (attempts)
  where status = 'pending' and attempts > 0 and max_attempts is null;

-- What no route leads anywhere, until one does.
create index outbox_events_unrouted on pillarbox.outbox_events (seq)
  where status = 'pending' and destination = 'unrouted';

-- The siblings of an event. Nothing else is in it.
create index outbox_events_siblings on pillarbox.outbox_events (parent_id)
  where parent_id is not null;

-- What is in somebody's hands, by the end of the lease.
-- A row in processing without an end was written by somebody else, and nobody comes back for it.
create index outbox_events_leased on pillarbox.outbox_events (coalesce(locked_until, '-infinity'))
  where status = 'processing';

-- What people look for: what was given up on, in all and by destination, and what carries a status that is not ours.
create index outbox_events_dead on pillarbox.outbox_events (seq)
  where status = 'dead';
create index outbox_events_dead_at on pillarbox.outbox_events (coalesce(destination, ''), namespace, seq)
  where status = 'dead';
create index outbox_events_unknown on pillarbox.outbox_events (seq)
  where status not in ('pending', 'processing', 'delivered', 'dead');

-- A second event with the same key is "already enqueued".
create unique index outbox_events_dedupe on pillarbox.outbox_events (namespace, topic, dedupe_key)
  where dedupe_key is not null;
