-- The whole outbox. Nothing is released, so this migration may still change; a later one never does.
--
--   1. ids, lanes and sizes          functions that the tables need
--   2. outbox_events, leases         one row is one event on its way to one destination; who holds it
--   3. workers, lane ranges, pauses  what dispatchers share; their wait for events
--   4. enqueue                       what roles may do; the functions that producers call
--   5. adopted, importers, failures  adopted tables
--   6. inbox                         what consumers have handled
--   7. sagas, saga_log               sagas and their history
--   8. audit                         who changed what
--   9. quotas, over_quota            how many pending events a role or a tenant may have
--  10. row-level security            which rows of tenants a role sees; an option
--  11. samples, totals               what the tables held, for metrics
--  12. pruners                       how long rows are kept after their end

-- 1. Ids, lanes and sizes
-- -----------------------

-- A body that begins with `return` is bound to the functions that it calls when it is created. So the search_path of the
-- session that inserts a row has no influence on its id and its lane.

-- A UUID of version 7: milliseconds, then random bits. New rows are inserted at the end of the primary key.
create function pillarbox.uuidv7() returns uuid
language sql volatile parallel safe
return encode(
  set_bit(set_bit(
    overlay(uuid_send(gen_random_uuid())
      placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3) from 1 for 6),
    52, 1), 53, 1),
  'hex')::uuid;

-- The lane of an ordering key, 0 to 4095. It must never change, because stored rows keep their lane.
create function pillarbox.lane(key text) returns smallint
language sql immutable strict parallel safe
return ('x' || substr(md5(key), 1, 3))::bit(12)::int::smallint;

-- The size of a compressed value in memory, or 0 if it cannot be decompressed: a claim measures rows before it reads them,
-- and one damaged row must not fail it. `#> '{}'` is the value itself, decompressed.
create function pillarbox.decompressed_size(payload jsonb) returns int
language plpgsql stable
as $$
begin
  return pg_column_size(payload #> '{}');
exception when others then
  return 0;
end
$$;

-- The size of a row's content in bytes: of the body, or about that of the JSON. It is read from the header. Only a
-- compressed value is decompressed to be measured. No JSON is written as text: 75 kB of numbers such as 1e131071 are 1 GB.
create function pillarbox.size(payload jsonb, body bytea) returns bigint
language sql stable
as $$
  select case
    when body is not null then octet_length(body)
    when pg_column_compression(payload) is null then pg_column_size(payload)
    else pillarbox.decompressed_size(payload)
  end::bigint
$$;

-- The limit of a payload in bytes, for the functions and for plain inserts. The owner of the outbox sets another by
-- replacing this function: docs/postgres.md#sizes.
create function pillarbox.max_payload() returns bigint
language sql immutable parallel safe
return 16777216;

-- Is a payload within the limit as it is sent? Called by a constraint, for a body and for JSON that may be large. It is not
-- inlined: PostgreSQL would do that again for every statement.
create function pillarbox.payload_fits(payload jsonb, body bytea) returns boolean
language plpgsql stable parallel safe set search_path = pg_catalog, pg_temp
as $$
begin
  return coalesce(octet_length(body), octet_length(payload::text)) <= pillarbox.max_payload();
end
$$;

-- Are the texts of all headers at most 64 KiB long, and their names at most 1 KiB?
create function pillarbox.headers_fit(headers jsonb) returns boolean
language plpgsql stable parallel safe set search_path = pg_catalog, pg_temp
as $$
begin
  return coalesce(sum(octet_length(name) + octet_length(value)) <= 65536 and max(octet_length(name)) <= 1024, true)
    from jsonb_each_text(headers) as header (name, value);
end
$$;

-- 2. Events
-- ---------

-- A row is one event on its way to one destination, with its state. docs/adr/0003-partial-indexes.md explains the indexes,
-- docs/adr/0017-claims-in-place.md why no index has a column that a claim changes.

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
  ordering_key     text collate "C" check (ordering_key <> ''),
  unordered        boolean not null default false,
  lane             smallint generated always as
                     (case when unordered then null else pillarbox.lane(ordering_key) end) stored,
  severity         text,
  payload          jsonb not null,
  body             bytea,
  content_type     text,
  content_encoding text,
  headers          jsonb not null default '{}' check (jsonb_typeof(headers) = 'object'),
  destination      text collate "C" check (destination <> ''),
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
  delivered_at     timestamptz,
  -- The adopted table that the event was imported from, by its name in the configuration. Only its importer may rewrite it.
  adopted_table    text collate "C",
  -- The role that enqueued the event. Written only while a role has a quota.
  enqueued_by      text collate "C",
  -- Does the row in processing have a lease of its own, until `locked_until`? Otherwise it has that of its claim in
  -- pillarbox.leases, and `locked_until` is the end of the first lease.
  own_lease        boolean not null default false,
  -- Is the row claimed with the other rows of its key, as a row that was tried? Otherwise it is claimed in the order of insertion.
  by_key           boolean not null default false,

  -- What the indexes know of the state. A claim of a row that was not tried before changes none of these columns.
  --
  -- 0: pending or in processing, due since it was inserted. 1: the same, due at a later time or claimed by its key. 2: dead.
  -- 3: unknown status.
  open             smallint generated always as (
                     case
                       when status in ('pending', 'processing') then (by_key or next_attempt_at > created_at)::int
                       when status = 'dead' then 2
                       when status <> 'delivered' then 3
                     end) stored,
  -- The end of the row's own lease. A row in processing without a claim was not written by Pillarbox, so it counts as
  -- expired.
  own_until        timestamptz generated always as (
                     case when status = 'processing' and (own_lease or claim_id is null)
                       then coalesce(locked_until, '-infinity') end) stored,
  -- The attempts of a pending row that may have none left: it has reached its own limit (the largest number), or has none.
  spent            int generated always as (
                     case
                       when status <> 'pending' then null
                       when attempts >= max_attempts then 2147483647
                       when attempts > 0 and max_attempts is null then attempts
                     end) stored,

  -- A claim cannot read a row with another value, so the insert is rejected. Without these constraints the row would become
  -- dead, with the reason `unreadable`. An infinite time is out of the range too.
  constraint attempts_are_counted check (attempts >= 0),
  constraint times_are_in_the_years_1_to_9999 check (
    next_attempt_at >= '0001-01-01 00:00:00+00' and next_attempt_at < '10000-01-01 00:00:00+00'
    and locked_until >= '0001-01-01 00:00:00+00' and locked_until < '10000-01-01 00:00:00+00'
    and created_at >= '0001-01-01 00:00:00+00' and created_at < '10000-01-01 00:00:00+00'
    and updated_at >= '0001-01-01 00:00:00+00' and updated_at < '10000-01-01 00:00:00+00'
    and delivered_at >= '0001-01-01 00:00:00+00' and delivered_at < '10000-01-01 00:00:00+00'
  ),
  -- Ids of version 8 are derived: by the import of adopted tables, and by inboxes. An event that a producer inserts with such an
  -- id could block the import, or suppress another event as a duplicate.
  constraint ids_of_version_8_are_derived check (
    updated_at > created_at or adopted_table is not null or get_byte(uuid_send(id), 6) >> 4 <> 8
  ),
  -- Sizes are bounded when a row is inserted, also by a plain INSERT. Every later change sets `updated_at` and skips the
  -- checks: they would read a large payload again at each attempt. What is small calls no function.
  constraint names_have_at_most_1024_bytes check (
    updated_at > created_at
    or octet_length(namespace) <= 1024 and octet_length(topic) <= 1024 and octet_length(event_type) <= 1024
      and octet_length(aggregate_type) <= 1024 and octet_length(aggregate_id) <= 1024 and octet_length(dedupe_key) <= 1024
      and octet_length(ordering_key) <= 1024 and octet_length(severity) <= 1024 and octet_length(destination) <= 1024
      and octet_length(content_type) <= 1024 and octet_length(content_encoding) <= 1024
  ),
  constraint headers_have_at_most_64_kib check (
    updated_at > created_at
    or pg_column_size(headers) <= 1024 and pg_column_compression(headers) is null
    or pillarbox.headers_fit(headers)
  ),
  -- A JSON number takes 12 bytes or more and is at most 128 KiB long when it is written out. So 1,536 bytes without
  -- compression hold at most 16 MiB.
  constraint payload_is_within_max_payload check (
    updated_at > created_at
    or body is null and pg_column_size(payload) <= 1536 and pg_column_compression(payload) is null
    or pillarbox.payload_fits(payload, body)
  )
) with (
  -- A claim writes the new version of a row beside the old one, so that no index changes. That needs room on the page.
  -- Measured on 2026-11-18: docs/adr/0017-claims-in-place.md.
  fillfactor = 45,
  -- Every event is updated twice. The default, 20 % dead rows, would slow every statement down.
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_insert_scale_factor = 0.1
);

alter sequence pillarbox.outbox_seq owned by pillarbox.outbox_events.seq;

-- Names are compared byte by byte (collate "C"), because statements step from name to name through these indexes and the
-- dispatcher compares names too. A row without a destination has '' in them.
--
-- No index may have a column that a claim changes, neither as a key nor in its predicate: status, attempts, updated_at,
-- locked_by, locked_until, claim_id. A row in processing stays in the index in which it was pending.

-- Rows without a lane that are due since they were inserted: backlog by backlog, in the order of insertion.
create index outbox_events_fresh on pillarbox.outbox_events (coalesce(destination, ''), namespace, seq)
  where open = 0 and lane is null;

-- Rows without a lane that wait for a later time: tried before, released, scheduled or retried by an operator.
create index outbox_events_waiting on pillarbox.outbox_events (coalesce(destination, ''), namespace, next_attempt_at, seq)
  where open = 1 and lane is null;

-- Unfinished rows with a lane, key by key. The first row of a key decides whether the key is blocked.
create index outbox_events_keyed on pillarbox.outbox_events (coalesce(destination, ''), namespace, lane, ordering_key, seq)
  where open < 3 and lane is not null;

-- Rows with a lane that are due since they were inserted: in each bucket of 128 lanes in the order of insertion. A worker
-- leases ranges of 128 lanes by default, and reads only its own.
create index outbox_events_fresh_keyed on pillarbox.outbox_events (coalesce(destination, ''), namespace, (lane >> 7), seq)
  where open = 0 and lane is not null;

-- Rows that may block their key, key by key: dead, tried or released.
create index outbox_events_tried on pillarbox.outbox_events (coalesce(destination, ''), namespace, lane, ordering_key, seq)
  where open in (1, 2) and lane is not null;

-- Pending rows that may have no attempts left. It is almost empty.
create index outbox_events_spent on pillarbox.outbox_events (spent)
  where spent is not null;

-- Rows in processing with a lease of their own, by its end. It holds what crashed workers left, and is almost empty.
create index outbox_events_own_leases on pillarbox.outbox_events (own_until)
  where own_until is not null;

-- Unrouted rows.
create index outbox_events_unrouted on pillarbox.outbox_events (seq)
  where open < 2 and destination = 'unrouted';

-- The siblings of an event.
create index outbox_events_siblings on pillarbox.outbox_events (parent_id)
  where parent_id is not null;

-- Rows that operators look for: dead ones and those with an unknown status, and dead ones by destination.
create index outbox_events_ended on pillarbox.outbox_events (open, seq)
  where open >= 2;
create index outbox_events_dead_at on pillarbox.outbox_events (coalesce(destination, ''), namespace, seq)
  where open = 2;

-- A second event with the same dedupe key is a duplicate.
create unique index outbox_events_dedupe on pillarbox.outbox_events (namespace, topic, dedupe_key)
  where dedupe_key is not null;

-- The leases of claims. A claim inserts one, and so does routing for the siblings that it inserts. A renewal writes here and
-- to no event.
--
-- When a lease expires, the rows that are still held under it get leases of their own, which have expired, and it is
-- deleted. After the last row of a claim is settled, the worker deletes it with the next settlement.
create table pillarbox.leases (
  claim_id   uuid not null,
  -- The first of its rows.
  first_row  uuid not null,
  worker     uuid not null,
  until      timestamptz not null,
  updated_at timestamptz not null default now(),
  -- All rows that were claimed with it, settled or not.
  rows       uuid[] not null,
  primary key (claim_id, first_row)
) with (
  autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 1000,
  toast.autovacuum_vacuum_scale_factor = 0,
  toast.autovacuum_vacuum_threshold = 5000
);

-- Random ids do not get smaller, so there is no use in trying to compress them.
alter table pillarbox.leases alter column rows set storage external;

create index leases_until on pillarbox.leases (until);

-- 3. Workers, lane ranges and pauses
-- ----------------------------------

-- The lanes of a backlog, divided into ranges that workers lease (docs/adr/0007-lanes.md). All ranges of a backlog are
-- created and deleted together, and only while none is leased.
-- A claim of rows with a key locks the ranges that it claims from, for share. A worker that leases a range locks it for
-- update.
create table pillarbox.lane_ranges (
  namespace    text collate "C" not null,
  destination  text collate "C" not null, -- '' for none yet
  number       int not null,
  -- Into how many ranges the lanes are divided, and for which setting. Where there are many backlogs it is fewer.
  ranges       int not null check (ranges between 1 and 4096),
  wanted       int not null check (wanted between 1 and 4096),
  owner        uuid,
  leased_until timestamptz,
  -- Its owner claims nothing more from it, and releases it for another worker.
  leaving      boolean not null default false,
  primary key (namespace, destination, number),
  check (number >= 0 and number < ranges)
) with (fillfactor = 50); -- leases are renewed often, and no changed column is indexed: room for in-place updates

-- The last heartbeat of each worker.
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
  failed      bigint not null default 0,
  -- Its breakers that are not closed: {"destination": {"state": …, "since": …, "reason": …}}.
  breakers    jsonb not null default '{}',
  -- {"destinations": […], or null for all, "unreachable": […], "routes": …, "lane_ranges": …}
  serves      jsonb not null default '{}'
) with (fillfactor = 50);

-- Destinations that are paused or disabled until an operator resumes them.
create table pillarbox.destinations (
  name      text collate "C" primary key,
  paused_at timestamptz not null default now(),
  reason    text not null,
  -- The destination asked for no more events. Otherwise an operator paused it.
  disabled  boolean not null default false
);

-- Waits until the sequence of events has moved from `last`, and returns its value. Called with `ended`, it also returns when
-- every transaction has ended that had written something at the call: what they enqueued is visible then.
--
-- The sequence is looked at after each nap, several times per statement: one statement per nap costs nearly twice as much. A
-- commit between the statements releases the snapshot, so that vacuum is not held up, and lets the next one see what other
-- sessions do now.
create procedure pillarbox.wait(
  inout last bigint, inout ended boolean, patience double precision, nap double precision default 0.003
)
language plpgsql
as $$
declare
  seen constant bigint := last;
  ends constant timestamptz := clock_timestamp() + make_interval(secs => patience);
  naps constant int := case when ended then 8 else 32 end;
  writers xid[];
begin
  if ended then
    writers := array(
      select backend_xid from pg_stat_activity where datname = current_database() and backend_xid is not null
    );
    commit;
  end if;
  loop
    select case when is_called then last_value else 0 end into last from pillarbox.outbox_seq;
    ended := last = seen and writers is not null and not exists (
      select from pg_stat_activity where datname = current_database() and backend_xid = any(writers)
    );
    exit when last <> seen or ended or clock_timestamp() >= ends;
    commit;
    perform from generate_series(1, naps)
    where pg_sleep(nap) is not null and coalesce(pg_sequence_last_value('pillarbox.outbox_seq'), 0) <> seen
    limit 1;
  end loop;
end
$$;

revoke all on procedure pillarbox.wait from public;

-- 4. Enqueue
-- ----------

-- Enqueue for every language, in the caller's transaction. It makes the checks of the Rust library, with the same messages.
-- docs/producers/README.md is the page for callers.
--
-- Producers call two functions, which run as the owner of the outbox. So a producer needs no grant on the table. The other
-- functions are internal.
--
-- PostgreSQL inlines a function in SQL that has no query, no SET clause and no subquery. The checks rely on it: they have
-- one home and cost no call.
--
-- Every call of one of these functions has arguments of exactly its types, also literals. Otherwise PostgreSQL would prefer
-- an overload that fits better, and it would run as the owner of the outbox.

-- The result of enqueueing one event.
create type pillarbox.enqueued as (id uuid, is_new boolean);

-- Why a name is rejected, or null.
create function pillarbox.name_refusal(field text, name text) returns text
language sql stable parallel safe
as $$
  select case
    when name = '' then format('`%s` is empty; give it a name such as "orders"', field)
    when octet_length(name) > 1024 then format('`%s` is %s bytes long; the limit is 1024', field, octet_length(name))
  end
$$;

-- Why headers are rejected, or null. Called only if they are large or have an empty name.
create function pillarbox.headers_refusal(headers jsonb) returns text
language sql stable parallel safe
as $$
  select coalesce(
    min(pillarbox.name_refusal('headers'::text, name)),
    case when sum(octet_length(name) + octet_length(value)) > 65536
      then format('`headers` is %s bytes long; the limit is 65536', sum(octet_length(name) + octet_length(value)))
    end
  )
  from jsonb_each_text(headers) as header (name, value)
$$;

-- The size of the payload as it is sent, in bytes. A jsonb below 1 MiB counts as 0 and is not serialised to be measured:
-- only numbers such as 1e9999 could exceed the limit.
create function pillarbox.payload_length(payload jsonb, body bytea) returns bigint
language sql stable parallel safe
as $$
  select case
    when body is not null then octet_length(body)
    when pg_column_size(payload) > 1048576 or pg_column_compression(payload) is not null
      then octet_length(payload::text)
    else 0
  end::bigint
$$;

-- Why an event is rejected, or null: the first fault, with the messages and in the order of the Rust library. A test
-- compares the two.
create function pillarbox.refusal(
  id uuid, namespace text, topic text, event_type text, event_version int, aggregate_type text, aggregate_id text,
  tenant_id uuid, dedupe_key text, ordering_key text, severity text, payload jsonb, body bytea, content_type text,
  content_encoding text, headers jsonb, destination text, deliver_at timestamptz
) returns text
language sql stable parallel safe
as $$
  select coalesce(
    pillarbox.name_refusal('namespace'::text, coalesce(namespace, '')),
    pillarbox.name_refusal('topic'::text, coalesce(topic, '')),
    pillarbox.name_refusal('event_type'::text, event_type),
    pillarbox.name_refusal('aggregate_type'::text, aggregate_type),
    pillarbox.name_refusal('aggregate_id'::text, aggregate_id),
    pillarbox.name_refusal('ordering_key'::text, ordering_key),
    pillarbox.name_refusal('severity'::text, severity),
    pillarbox.name_refusal('content_type'::text, content_type),
    pillarbox.name_refusal('content_encoding'::text, content_encoding),
    pillarbox.name_refusal('dedupe_key'::text, dedupe_key),
    pillarbox.name_refusal('destination'::text, destination),
    case
      when get_byte(uuid_send(id), 6) >> 4 = 8 then format(
        '`id` is the version 8 UUID %s, which is reserved for ids that Pillarbox derives (leave `id` out, or use version 7)', id)
      when event_version < 1 then format('`event_version` is %s; versions count from 1', event_version)
      when destination = 'unrouted' then
        '`destination` is "unrouted", which is reserved for events that no route matches (choose another name)'
      when deliver_at is not null and ordering_key is not null then
        '`deliver_at` and `ordering_key` exclude each other: the key''s other events would wait for this one'
      when deliver_at > now() + interval '400 days' then
        format('`deliver_at` is %s +00:00:00; the latest is 400 days from now', deliver_at at time zone 'UTC')
      when jsonb_typeof(headers) <> 'object' then
        '`headers` is no JSON object; give names and texts, such as {"source": "web"}'
      when headers @? 'strict $.* ? (@.type() != "string")' then
        '`headers` holds a value that is no text; write numbers, lists and the like as texts'
    end,
    -- No name and no sum is over its limit where all of it is smaller.
    case when headers ? '' or pg_column_size(headers) > 1024 or pg_column_compression(headers) is not null
      then pillarbox.headers_refusal(headers)
    end,
    case
      when tenant_id is not null
        and (strpos(dedupe_key, '/') = 0
          or lower(split_part(dedupe_key, '/', 1)) not in (tenant_id::text, replace(tenant_id::text, '-', '')))
      then format(
        '`dedupe_key` does not begin with "%s/"; with a tenant, the key must begin with its id and a slash', tenant_id)
      when content_encoding is not null and body is null then
        '`content_encoding` is set, but the payload is JSON, which is not encoded; send encoded bytes, or leave it out'
      when body is not null and payload not in ('{}', 'null') then
        '`payload` and `body` exclude each other: an event is JSON or bytes; give one of them'
      when pillarbox.payload_length(payload, body) > pillarbox.max_payload() then
        format('the payload is %s bytes; the limit is %s (raise `max_payload`, or send a reference to the data)',
          pillarbox.payload_length(payload, body), pillarbox.max_payload())
    end
  )
$$;

-- Fails with the reason, and with the event's position in the array, which is 0 for a single event. It is strict, so
-- PostgreSQL does not call it for a valid event, whose reason is null.
create function pillarbox.refuse(refusal text, place bigint) returns boolean
language plpgsql stable strict
as $$
begin
  raise exception using
    errcode = 'invalid_parameter_value',
    message = refusal,
    hint = format('Nothing was written. Roll back, mend %s and try again.',
      case when place > 0 then 'event ' || place || ' of the array' else 'the event' end);
end
$$;

-- Fails if the event with the same dedupe key disappeared each time it was looked up.
create function pillarbox.vanished() returns void
language plpgsql volatile
as $$
begin
  raise exception using
    errcode = 'serialization_failure',
    message = 'an event with this dedupe key was deleted, or written after this transaction began (retry the transaction)';
end
$$;

-- The trace of the caller's transaction as headers, from the session's settings. An invalid W3C traceparent is ignored,
-- and so is a tracestate that is too long or not printable.
create function pillarbox.trace() returns jsonb
language sql stable parallel safe
as $$
  select case
    when coalesce(current_setting('pillarbox' || '.traceparent', true), '') = '' then '{}'
    when current_setting('pillarbox' || '.traceparent') !~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$'
      or current_setting('pillarbox' || '.traceparent') ~ '^(ff|..-0{32})|-0{16}-..$' then '{}'
    else jsonb_strip_nulls(jsonb_build_object(
      'traceparent', current_setting('pillarbox' || '.traceparent'),
      'tracestate', case
        when octet_length(current_setting('pillarbox' || '.tracestate', true)) <= 512
          then substring(current_setting('pillarbox' || '.tracestate', true) from '^[ -~]+$')
      end))
  end
$$;

-- Headers with the trace, unless they have a traceparent of their own. A tracestate without traceparent is removed.
create function pillarbox.traced(headers jsonb, trace jsonb) returns jsonb
language sql stable parallel safe
as $$
  select case
    when trace = '{}' or jsonb_typeof(headers) <> 'object' or strpos(lower(headers::text), '"traceparent": ') > 0
      then headers
    else headers - 'tracestate' || trace
  end
$$;

-- What roles may do within their duty. `pillarbox grant` writes it, and only the owner of the outbox may. A role is the oid, shown as a
-- name: a role that is created again under the name of a dropped one has no bounds, and a renamed one keeps its own.
create table pillarbox.role_bounds (
  role         regrole not null,
  duty         text not null check (duty in (
    'producer', 'writer', 'consumer', 'orchestrator', 'dispatcher', 'api', 'api_any_tenant'
  )),
  -- A producer's namespaces and tenants; null is any. With tenants, an event must have one of them.
  namespaces   text[],
  tenants      uuid[],
  -- The destinations that a producer may name. Without a name, the routes decide.
  destinations text[] not null default '{}',
  -- The consumers or the kinds of saga; null is any.
  names        text[],
  primary key (role, duty)
);

-- The role that the session runs as by SET ROLE, or the one that logged in. A function that is `security definer` does not change it.
-- Nobody can set it to a role that it is not a member of.
create function pillarbox.role_of_session() returns name
language sql stable parallel safe
return case when current_setting('role'::text) <> 'none'::text then current_setting('role'::text)::name else session_user end;

-- The role whose bounds count: that of the session. A superuser that logged in counts only if it is the owner of the outbox, which is
-- `current_user` where this is called; otherwise the caller is null. For ANALYZE, REINDEX and autovacuum run the functions of an index
-- as the owner of its table, in the session of a superuser.
create function pillarbox.caller() returns name
language sql stable parallel safe
return case
  when current_setting('role'::text) <> 'none'::text or session_user = current_user
    or not exists (select from pg_roles where rolname = session_user and rolsuper) then pillarbox.role_of_session()
end;

-- May the caller enqueue such an event? Called by functions that run as the owner of the outbox, which is `current_user`.
-- The owner and its members are not bound, nor is a superuser that set its role. A member of a producer has its bounds too.
--
-- Every enqueue calls it, so what a producer does not need is asked for last: who is no member of the owner is no superuser.
create function pillarbox.may_enqueue(namespace text, tenant_id uuid, destination text) returns boolean
language plpgsql stable
as $$
#variable_conflict use_variable
declare
  role_of_session constant name := pillarbox.role_of_session();
  bound_role constant regrole := to_regrole(quote_ident(role_of_session::text));
begin
  if pg_has_role(role_of_session, current_user, 'usage') then
    return pillarbox.caller() is not null;
  end if;
  if exists (
    select from pillarbox.role_bounds b
    where b.role = bound_role and b.duty = 'producer'
      and (b.namespaces is null or namespace = any(b.namespaces))
      and (b.tenants is null or tenant_id = any(b.tenants))
      and (destination is null or destination = any(b.destinations))
  ) then
    return true;
  end if;
  return exists (
    select from pillarbox.role_bounds b join pg_roles r on r.oid = b.role
    where b.duty = 'producer' and pg_has_role(role_of_session, r.oid, 'usage')
      and (b.namespaces is null or namespace = any(b.namespaces))
      and (b.tenants is null or tenant_id = any(b.tenants))
      and (destination is null or destination = any(b.destinations))
  );
end
$$;

-- Fails unless the caller may enqueue such an event.
create function pillarbox.authorise(namespace text, tenant_id uuid, destination text) returns void
language plpgsql stable
as $$
begin
  if not pillarbox.may_enqueue(namespace, tenant_id, destination) then
    raise exception using
      errcode = 'insufficient_privilege',
      message = format('role "%s" may not enqueue this event: namespace "%s", %s, %s',
        coalesce(pillarbox.caller(), session_user), left(namespace, 1024),
        coalesce('tenant ' || tenant_id, 'no tenant'),
        coalesce('destination "' || left(destination, 1024) || '"', 'no destination')),
      hint = case when pillarbox.caller() is null
        then format('A superuser says for whom it enqueues: set role %I, or a producer.', current_user)
        else 'The owner of the outbox allows it with `pillarbox grant producer ROLE --namespace NAME [--tenant ID] [--destination NAME]`.'
      end;
  end if;
end
$$;

-- Those of these ids that are in the outbox. A caller sees the ids of the events that it may enqueue.
create function pillarbox.ids_taken(ids uuid[]) returns setof uuid
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$
  select e.id from pillarbox.outbox_events e
  where e.id = any(ids) and pillarbox.may_enqueue(e.namespace, e.tenant_id, null::text)
$$;

-- The consumers or the kinds of saga of a role; null is any. Policies of row-level security call it, once per statement, for
-- `current_user`, which is in a policy the role that the statement runs as.
create function pillarbox.own_names(duty text, who name) returns text[]
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  return case when not bool_or(b.names is null) or count(b.role) = 0 then coalesce(array_agg(name), '{}') end
    from pillarbox.role_bounds b
    join pg_roles r on r.oid = b.role and pg_has_role(who, r.oid, 'usage')
    left join unnest(b.names) as name on true
    where b.duty = own_names.duty;
end
$$;

-- Enqueues one event in the caller's transaction. An argument that is null takes its default.
-- Locks: the new row and its dedupe key until the transaction ends; if serialised, its ordering key too.
-- If the caller dies: the transaction rolls back, and nothing happened.
create function pillarbox.enqueue(
  namespace text,
  topic text,
  payload jsonb default '{}',
  event_type text default null,
  event_version int default 1,
  aggregate_type text default null,
  aggregate_id text default null,
  tenant_id uuid default null,
  dedupe_key text default null,
  ordering_key text default null,
  severity text default null,
  headers jsonb default '{}',
  destination text default null,
  deliver_at timestamptz default null,
  body bytea default null,
  content_type text default null,
  content_encoding text default null,
  id uuid default null,
  serialised boolean default false
) returns pillarbox.enqueued
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  trace constant jsonb := pillarbox.trace();
  result pillarbox.enqueued;
begin
  payload := coalesce(payload, '{}');
  event_version := coalesce(event_version, 1);
  headers := coalesce(headers, '{}');
  headers := pillarbox.traced(headers, trace);
  perform pillarbox.refuse(pillarbox.refusal(
    id, namespace, topic, event_type, event_version, aggregate_type, aggregate_id, tenant_id, dedupe_key, ordering_key,
    severity, payload, body, content_type, content_encoding, headers, destination, deliver_at), 0::bigint);
  if not pillarbox.may_enqueue(namespace, tenant_id, destination) then
    perform pillarbox.authorise(namespace, tenant_id, destination);
  end if;
  if body is not null then
    payload := 'null';
  end if;
  if serialised and ordering_key is not null then
    -- The same lock as in sql/serialise.sql.
    perform pg_advisory_xact_lock(hashtextextended(namespace || E'\x1f' || ordering_key, 8101531));
  end if;
  -- The event with the same key may be deleted before it is looked up.
  for look in 1..3 loop
    insert into pillarbox.outbox_events (
      id, namespace, topic, event_type, event_version, aggregate_type, aggregate_id, tenant_id, dedupe_key,
      ordering_key, severity, payload, body, content_type, content_encoding, headers, destination, next_attempt_at
    ) values (
      coalesce(enqueue.id, pillarbox.uuidv7()), namespace, topic, event_type, event_version, aggregate_type,
      aggregate_id, tenant_id, dedupe_key, ordering_key, severity, payload, body, content_type, content_encoding,
      headers, destination, greatest(deliver_at, now())
    )
    on conflict (namespace, topic, dedupe_key) where dedupe_key is not null do nothing
    returning id, true into result;
    if found then
      return result;
    end if;
    select e.id, false into result from pillarbox.outbox_events e
    where e.namespace = enqueue.namespace and e.topic = enqueue.topic and e.dedupe_key = enqueue.dedupe_key;
    if found then
      return result;
    end if;
  end loop;
  perform pillarbox.vanished();
end
$$;

-- The keys that an event in an array may have.
create function pillarbox.known_keys() returns text[]
language sql immutable parallel safe
as $$
  select '{namespace, topic, payload, event_type, event_version, aggregate_type, aggregate_id, tenant_id, dedupe_key,
    ordering_key, severity, headers, destination, deliver_at, body, content_type, content_encoding, id}'::text[]
$$;

-- Why an element of an array is no event. Called only if it is none.
create function pillarbox.element_refusal(element jsonb, ord bigint) returns text
language sql stable parallel safe
as $$
  select case
    when jsonb_typeof(element) <> 'object' then format('event %s of the array is no JSON object', ord)
    else format('event %s of the array has the key `%s`, which is none of: %s', ord,
      (select min(key) from jsonb_object_keys(element - pillarbox.known_keys()) as key),
      array_to_string(pillarbox.known_keys(), ', '))
  end
$$;

-- The events of an array, in one pass over the JSON. It fails at the first invalid event.
-- PostgreSQL inlines it. `offset 0` keeps the planner from writing each value into every check that uses it, which would
-- extract it as often.
create function pillarbox.read_events(events jsonb, trace jsonb) returns table (
  ord bigint, id uuid, namespace text, topic text, event_type text, event_version int, aggregate_type text,
  aggregate_id text, tenant_id uuid, dedupe_key text, ordering_key text, severity text, payload jsonb, body bytea,
  content_type text, content_encoding text, headers jsonb, destination text, deliver_at timestamptz
)
language sql stable
as $$
  select
    ord, id, namespace, topic, event_type, event_version, aggregate_type, aggregate_id, tenant_id, dedupe_key,
    ordering_key, severity, case when body is null then payload else 'null' end, body, content_type, content_encoding,
    headers, destination, deliver_at
  from (
    select
      ord, element, (element ->> 'id')::uuid as id, element ->> 'namespace' as namespace, element ->> 'topic' as topic,
      element ->> 'event_type' as event_type, coalesce((element ->> 'event_version')::int, 1) as event_version,
      element ->> 'aggregate_type' as aggregate_type, element ->> 'aggregate_id' as aggregate_id,
      (element ->> 'tenant_id')::uuid as tenant_id, element ->> 'dedupe_key' as dedupe_key,
      element ->> 'ordering_key' as ordering_key, element ->> 'severity' as severity,
      coalesce(element -> 'payload', '{}'::jsonb) as payload, decode(element ->> 'body', 'base64') as body,
      element ->> 'content_type' as content_type, element ->> 'content_encoding' as content_encoding,
      pillarbox.traced(coalesce(nullif(element -> 'headers', 'null'::jsonb), '{}'::jsonb), trace) as headers,
      element ->> 'destination' as destination, (element ->> 'deliver_at')::timestamptz as deliver_at
    from jsonb_array_elements(events) with ordinality as given (element, ord)
    offset 0
  ) as event
  where pillarbox.refuse(
    coalesce(
      case when jsonb_typeof(element) <> 'object' or element - pillarbox.known_keys() <> '{}'
        then pillarbox.element_refusal(element, ord)
      end,
      pillarbox.refusal(
        id, namespace, topic, event_type, event_version, aggregate_type, aggregate_id, tenant_id, dedupe_key, ordering_key,
        severity, payload, body, content_type, content_encoding, headers, destination, deliver_at)
    ), ord) is null
$$;

-- Enqueues many events in the caller's transaction: an array of objects whose keys are the arguments of
-- pillarbox.enqueue, with `body` in base64. An error enqueues none of them.
-- Locks: the new rows and their dedupe keys until the transaction ends. The keys are locked in their own order, byte by
-- byte as in the Rust library, so that two callers cannot deadlock. `seq` is drawn before, in the caller's order.
create function pillarbox.enqueue_many(events jsonb, serialised boolean default false)
returns table (ord bigint, id uuid, is_new boolean)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  trace constant jsonb := pillarbox.trace();
  -- By position in the array: the event's `seq`, its id, and whether this call inserted it. Null until known.
  seqs bigint[];
  ids uuid[];
  news boolean[];
begin
  if events is null or jsonb_typeof(events) <> 'array' then
    perform pillarbox.refuse('`events` is no JSON array; give an array of objects'::text, 0::bigint);
  end if;
  if events = '[]' then
    return;
  end if;
  -- Before anything is looked up: the answer about a duplicate must not tell what is in another namespace.
  if not pg_has_role(pillarbox.role_of_session(), current_user, 'usage') or pillarbox.caller() is null then
    perform pillarbox.authorise(asked.namespace, asked.tenant_id, asked.destination) from (
      select distinct element ->> 'namespace' as namespace, (element ->> 'tenant_id')::uuid as tenant_id,
        element ->> 'destination' as destination
      from jsonb_array_elements(events) as given (element)
      where element ->> 'namespace' is not null
    ) as asked;
  end if;
  if serialised then
    -- The same lock as in sql/serialise.sql.
    perform pg_advisory_xact_lock(lock) from (
      select distinct hashtextextended(namespace || E'\x1f' || ordering_key, 8101531) as lock
      from pillarbox.read_events(events, trace)
      where ordering_key is not null
      order by lock
    ) as locks;
  end if;

  if not events @? '$[*].dedupe_key' then
    return query
      with written as (
        insert into pillarbox.outbox_events (
          id, namespace, topic, event_type, event_version, aggregate_type, aggregate_id, tenant_id, ordering_key,
          severity, payload, body, content_type, content_encoding, headers, destination, next_attempt_at
        )
        select
          coalesce(id, pillarbox.uuidv7()), namespace, topic, event_type, event_version, aggregate_type, aggregate_id,
          tenant_id, ordering_key, severity, payload, body, content_type, content_encoding, headers, destination,
          greatest(deliver_at, now())
        from pillarbox.read_events(events, trace)
        returning seq, id
      )
      select row_number() over (order by seq), id, true from written;
    return;
  end if;

  -- Before the first number is drawn, as an INSERT does it: claims of keys count on it (watermark.rs).
  lock table pillarbox.outbox_events in row exclusive mode;
  -- The event with the same key may be deleted before it is looked up.
  for look in 1..3 loop
    seqs := array(
      select case when ids[n] is null then nextval('pillarbox.outbox_seq') end
      from generate_series(1, jsonb_array_length(events)) as n);
    with written as (
      insert into pillarbox.outbox_events (
        id, seq, namespace, topic, event_type, event_version, aggregate_type, aggregate_id, tenant_id, dedupe_key,
        ordering_key, severity, payload, body, content_type, content_encoding, headers, destination, next_attempt_at
      )
      select
        coalesce(id, pillarbox.uuidv7()), seqs[ord], namespace, topic, event_type, event_version, aggregate_type,
        aggregate_id, tenant_id, dedupe_key, ordering_key, severity, payload, body, content_type, content_encoding,
        headers, destination, greatest(deliver_at, now())
      from pillarbox.read_events(events, trace)
      where seqs[ord] is not null
      order by dedupe_key collate "C" nulls first, namespace collate "C", topic collate "C", ord
      on conflict (namespace, topic, dedupe_key) where dedupe_key is not null do nothing
      returning seq, id
    )
    select
      array_agg(coalesce(known_id, written.id) order by ord),
      array_agg(case when known_id is not null then known_new when written.id is not null then true end order by ord)
    into ids, news
    from unnest(seqs, ids, news) with ordinality as drawn (seq, known_id, known_new, ord) left join written using (seq);
    exit when array_position(ids, null) is null;

    select
      array_agg(coalesce(known_id, e.id) order by ord),
      array_agg(case when known_id is not null then known_new when e.id is not null then false end order by ord)
    into ids, news
    from rows from (
      jsonb_to_recordset(events) as (namespace text, topic text, dedupe_key text),
      unnest(ids, news)
    ) with ordinality as given (namespace, topic, dedupe_key, known_id, known_new, ord)
    left join pillarbox.outbox_events e
      on known_id is null and e.namespace = given.namespace and e.topic = given.topic
        and e.dedupe_key = given.dedupe_key;
    exit when array_position(ids, null) is null;
  end loop;
  if array_position(ids, null) is not null then
    perform pillarbox.vanished();
  end if;
  return query select result.ord, result.id, result.is_new
    from unnest(ids, news) with ordinality as result (id, is_new, ord);
end
$$;

revoke all on function
  pillarbox.name_refusal, pillarbox.headers_refusal, pillarbox.payload_length, pillarbox.refusal, pillarbox.refuse,
  pillarbox.vanished, pillarbox.trace, pillarbox.traced, pillarbox.known_keys, pillarbox.element_refusal,
  pillarbox.read_events, pillarbox.role_of_session, pillarbox.caller, pillarbox.may_enqueue, pillarbox.authorise, pillarbox.ids_taken,
  pillarbox.own_names, pillarbox.enqueue, pillarbox.enqueue_many
from public;

comment on function pillarbox.enqueue is
  'Enqueues one event in this transaction: select * from enqueue(namespace => ..., topic => ..., payload => ...)';
comment on function pillarbox.enqueue_many is
  'Enqueues an array of events in this transaction; the keys of each are the arguments of enqueue';

-- 5. Adopted tables
-- -----------------

-- docs/adopt.md, docs/adr/0013-adopted-tables.md.

-- The mapping rows: which row of an adopted table became which event. A delivered event has none.
create table pillarbox.adopted (
  -- The table's name in the configuration, and the row's id.
  adopted_table      text collate "C" not null,
  row_id             text collate "C" not null,
  event_id           uuid primary key,
  -- The tenant of the event.
  tenant_id          uuid,
  -- The row's state columns as Pillarbox last read or wrote them. A difference means that others changed the row.
  fingerprint        text not null,
  -- The event is dead, or an operator deleted it.
  ended              boolean not null default false,
  -- The state was not written back yet: another session held the row, or the table rejected it.
  write_back_pending boolean not null default false,
  -- The table rejected the pending write-back. Such a row is not in progress: it may stay so for ever.
  rejected           boolean not null default false,
  -- When the importer last tried the pending write-back. The oldest come first, so none keeps others from their turn.
  tried_at           timestamptz not null default '-infinity'
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);

create index adopted_open on pillarbox.adopted (adopted_table) where not ended and not rejected;
create index adopted_pending on pillarbox.adopted (adopted_table, rejected, tried_at) where write_back_pending;

-- Which worker imports an adopted table: one at a time, by a lease.
create table pillarbox.importers (
  adopted_table text collate "C" primary key,
  owner         uuid not null,
  leased_until  timestamptz not null,
  -- The table itself, so that it is known under a new name in the configuration.
  relation      regclass
);

-- Rows of adopted tables that cannot be imported: their values do not fit, another event has their id, or the database
-- rejects them. They are tried again with a slow backoff, and at once when they are changed.
create table pillarbox.import_failures (
  adopted_table   text collate "C" not null,
  event_id        uuid not null,
  row_id          text collate "C" not null,
  -- Which version of the row failed, and with which layout. If either changes, the row is tried again at once. Several if
  -- the partitions of a table have the same id.
  versions        text[] not null,
  layout          text not null,
  -- Another event has its id. It is tried again when that event is gone.
  is_conflict     boolean not null,
  error           text not null,
  failed_at       timestamptz not null default now(),
  attempts        integer not null default 1,
  -- -infinity if an operator asked for it.
  next_attempt_at timestamptz not null default now() + interval '1 minute',
  primary key (adopted_table, event_id)
);

create index import_failures_due on pillarbox.import_failures (adopted_table, next_attempt_at);

-- 6. Inbox
-- --------

-- What consumers have handled, so that a duplicate has no effect: docs/inbox.md.
create table pillarbox.inbox (
  consumer   text collate "C" not null,
  -- The event's id, or an id derived from its namespace, topic and dedupe key.
  event_id   uuid not null,
  handled_at timestamptz not null default now(),
  primary key (consumer, event_id)
);

-- What a consumer prunes.
create index inbox_old on pillarbox.inbox (consumer, handled_at);

-- Fails unless the caller may remove marks of the consumer. The owner and its members are not bound.
create function pillarbox.authorise_consumer(consumer text) returns void
language plpgsql stable
as $$
declare
  caller constant name := pillarbox.caller();
  own constant text[] := pillarbox.own_names('consumer'::text, caller);
begin
  if pg_has_role(caller, current_user, 'usage') is not true and (own is null or consumer = any(own)) is not true then
    raise exception using
      errcode = 'insufficient_privilege',
      message = format('role "%s" may not remove marks of the consumer "%s"', coalesce(caller, session_user), left(consumer, 1024)),
      hint = case when caller is null
        then format('A superuser says for whom it does that: set role %I, or a consumer.', current_user)
        else 'The owner of the outbox allows it with `pillarbox grant consumer ROLE --name NAME`.'
      end;
  end if;
end
$$;

-- Consumers remove marks with two functions. DELETE on the table would let them lock it in every mode, and stop all consumers.

-- Removes marks, so that the events are new again. Returns how many.
-- Locks: the marks.
create function pillarbox.unmark(consumer text, events uuid[]) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  gone bigint;
begin
  perform pillarbox.authorise_consumer(unmark.consumer);
  delete from pillarbox.inbox where consumer = unmark.consumer and event_id = any(events);
  get diagnostics gone = row_count;
  return gone;
end
$$;

-- Removes marks that are older than `age`, the oldest first, and `most` of them. Returns how many.
-- Locks: the marks; those that are locked by others are skipped. Index: inbox_old.
create function pillarbox.prune_inbox(consumer text, age interval, most int) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  gone bigint;
begin
  perform pillarbox.authorise_consumer(prune_inbox.consumer);
  delete from pillarbox.inbox where ctid = any(array(
    select ctid from pillarbox.inbox where consumer = prune_inbox.consumer and handled_at < now() - age
    order by handled_at limit most for update skip locked
  )) and consumer = prune_inbox.consumer and handled_at < now() - age;
  get diagnostics gone = row_count;
  return gone;
end
$$;

revoke all on function pillarbox.authorise_consumer, pillarbox.unmark, pillarbox.prune_inbox from public;

-- 7. Sagas
-- --------

-- Written in the transactions of the application that runs them: docs/sagas.md, docs/adr/0015-sagas.md.

create table pillarbox.sagas (
  -- The kind of saga and its id, both named by the application. The id leads the key, because operators search by it.
  name       text collate "C" not null,
  id         text collate "C" not null,
  seq        bigint generated always as identity unique,
  -- Where its timeouts and the requests of operators are sent. It never changes.
  namespace  text not null,
  topic      text not null,
  status     text collate "C" not null check (status in ('running', 'compensating', 'completed', 'compensated')),
  -- The steps that were started and not compensated. The last one is current until the saga has ended.
  path       jsonb not null,
  -- The current try at this step, and how many of its tries count against the limit.
  attempt    int not null,
  tries      int not null,
  -- Did a try at the current step end without an answer?
  in_doubt   boolean not null default false,
  data       jsonb not null,
  last_error text,
  timeout_at timestamptz,
  -- Secrets: what the tokens of its tries are made from, which replies echo, and what proves the saga's timeouts and the requests of
  -- operators.
  attempt_secret text not null,
  own_token      text not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  primary key (id, name)
);

-- Sagas that have not ended.
create index sagas_open on pillarbox.sagas (status, seq) where status in ('running', 'compensating');

-- What happened to each saga. Deleted with it.
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

-- Does the log belong to a saga of the role's kinds? The policy of the log calls it. It is volatile, because the statement that
-- writes a new saga writes its log too.
create function pillarbox.is_own_saga(saga bigint, who name) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  own constant text[] := pillarbox.own_names('orchestrator'::text, who);
begin
  return exists (select from pillarbox.sagas s where s.seq = saga and (own is null or s.name = any(own)));
end
$$;

-- May a role enqueue in a namespace, so that its sagas may have their address there? Operators enqueue to that address with rights of
-- their own. The policy of sagas calls it.
create function pillarbox.may_address(namespace text, who name) returns boolean
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
as $$
begin
  return pg_has_role(who, current_user, 'usage')
    or has_column_privilege(who, 'pillarbox.outbox_events', 'namespace', 'insert')
    or exists (
      select from pillarbox.role_bounds b join pg_roles r on r.oid = b.role
      where b.duty = 'producer' and pg_has_role(who, r.oid, 'usage')
        and (b.namespaces is null or may_address.namespace = any(b.namespaces))
    );
end
$$;

revoke all on function pillarbox.is_own_saga, pillarbox.may_address from public;

-- 8. Audit
-- --------

-- Who changed what, and why: docs/operations/audit.md. A line is written in the transaction of its change, and stays as it is.
create table pillarbox.audit (
  seq       bigint generated always as identity primary key,
  at        timestamptz not null default now(),
  -- The actor, as the program names it.
  subject   text not null check (octet_length(subject) <= 2048),
  kind      text collate "C" not null check (kind in ('operator', 'service', 'worker')),
  -- The role of the session, which a program cannot choose.
  role      name not null default session_user,
  -- Set if the actor acted for one tenant.
  tenant_id uuid,
  action    text collate "C" not null check (octet_length(action) <= 64),
  -- Ids of rows, or names. The first thousand; `count` has all.
  objects   text[] not null check (cardinality(objects) <= 1000),
  count     bigint not null,
  before    jsonb,
  after     jsonb,
  reason    text check (octet_length(reason) <= 2048)
);

-- The lines of a tenant, newest first.
create index audit_by_tenant on pillarbox.audit (tenant_id, seq) where tenant_id is not null;

create function pillarbox.keep_audit() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp
as $$ begin
  raise exception 'the audit is not changed: lines are only added' using errcode = '42501';
end $$;

revoke all on function pillarbox.keep_audit from public;

create trigger audit_is_kept before update or delete or truncate on pillarbox.audit
for each statement execute function pillarbox.keep_audit();

-- 9. Quotas
-- ---------

-- How many pending events a role or a tenant may have: docs/postgres.md#quotas, docs/adr/0019-quotas.md. `pillarbox quota` writes
-- it, and only the owner of the outbox may. What a quota costs at enqueue, two triggers and two indexes, exists only while there are
-- quotas.
create table pillarbox.quotas (
  kind        text collate "C" not null check (kind in ('role', 'tenant')),
  -- The role, or the id of the tenant. '' is each tenant without a quota of its own.
  name        text collate "C" not null,
  -- A count reads so many rows and one more.
  max_pending bigint not null check (max_pending between 1 and 1000000),
  primary key (kind, name),
  check (case kind when 'role' then name <> '' else name = '' or name = name::uuid::text end)
);

-- Who had more, as a worker counted last. Enqueue reads it.
create table pillarbox.over_quota (
  kind        text collate "C" not null,
  name        text collate "C" not null,
  max_pending bigint not null,
  counted_at  timestamptz not null,
  primary key (kind, name)
) with (fillfactor = 50); -- counted again every few seconds, and no changed column is indexed: room for in-place updates

-- A role and its members, by name. A role that does not exist has itself.
create function pillarbox.members(role text) returns setof text
language sql stable
as $$
  with recursive member (id) as (
    select r.oid from pg_roles r where r.rolname = members.role
    union
    select m.member from member join pg_auth_members m on m.roleid = member.id
  )
  select r.rolname::text from member join pg_roles r on r.oid = member.id
  union
  select members.role
$$;

-- How many unfinished rows count against a quota: at most one more than its limit. There must be an index for quotas of the kind.
create function pillarbox.count_pending(kind text, name text, most bigint) returns bigint
language plpgsql stable
as $$
begin
  if kind = 'tenant' then
    return (select count(*) from (
      select from pillarbox.outbox_events e where e.open < 2 and e.tenant_id = count_pending.name::uuid limit most + 1
    ) as pending);
  end if;
  return (select count(*) from (
    select from pillarbox.outbox_events e
    where e.open < 2 and e.enqueued_by = any(array(select pillarbox.members(count_pending.name))) limit most + 1
  ) as pending);
end
$$;

-- A role and those that it is a member of, by name.
create function pillarbox.memberships(role text) returns setof text
language sql stable
as $$
  with recursive upward (id) as (
    select to_regrole(quote_ident(memberships.role))::oid
    union
    select m.roleid from upward join pg_auth_members m on m.member = upward.id
  )
  select coalesce(pg_get_userbyid(id)::text, memberships.role) from upward
$$;

-- Fails if a role or a tenant whose events a statement has enqueued is over its quota. A count that is older than ten minutes
-- refuses nothing: no worker counts then. Siblings and rows of adopted tables are not enqueued by producers.
--
-- Each holder is looked up by its key, whatever the planner expects. Under a snapshot that another session holds, a scan would read
-- every version of every count.
create function pillarbox.check_quotas() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off
as $$
declare
  since constant timestamptz := clock_timestamp() - interval '10 minutes';
  exceeded pillarbox.over_quota;
begin
  select o.* into exceeded
  from (
    select distinct e.tenant_id::text as tenant from enqueued e
    where e.tenant_id is not null and e.parent_id is null and e.adopted_table is null
  ) as writer cross join lateral (
    select * from pillarbox.over_quota q where q.kind = 'tenant' and q.name = writer.tenant limit 1
  ) as o
  where o.counted_at > since
  limit 1;
  if not found then
    select o.* into exceeded
    from (
      select distinct e.enqueued_by as role from enqueued e
      where e.enqueued_by is not null and e.parent_id is null and e.adopted_table is null
    ) as writer cross join lateral pillarbox.memberships(writer.role) as holder (name) cross join lateral (
      select * from pillarbox.over_quota q where q.kind = 'role' and q.name = holder.name limit 1
    ) as o
    where o.counted_at > since
    limit 1;
  end if;
  if found then
    raise exception using
      errcode = 'PBQ01',
      message = format('quota exceeded: %s %s has more than %s pending events, which is its limit '
          '(try again when some are delivered, or let the owner of the outbox raise it with `pillarbox quota set`)',
        exceeded.kind, case exceeded.kind when 'role' then '"' || exceeded.name || '"' else exceeded.name end,
        exceeded.max_pending),
      hint = 'Nothing was written. Roll back, or go on from a savepoint before the statement.';
  end if;
  return null;
end
$$;

-- Writes down who enqueues: the role that logged in, or that the session chose. It runs as that role, for every row, so nothing in
-- it depends on the search_path.
create function pillarbox.note_role() returns trigger
language plpgsql
as $$
begin
  new.enqueued_by := case when pg_catalog.current_setting('role') operator(pg_catalog.=) 'none'
    then session_user::pg_catalog.text else pg_catalog.current_setting('role') end;
  return new;
end
$$;

revoke all on function
  pillarbox.members, pillarbox.count_pending, pillarbox.memberships, pillarbox.check_quotas, pillarbox.note_role
from public;

-- 10. Row-level security
-- ----------------------

-- An option: docs/postgres.md#row-level-security, docs/adr/0020-row-level-security.md. `pillarbox migrate --row-security` and
-- `pillarbox grant api` switch it on. Until then there is no policy on these tables.

-- The tenant that the program set for this transaction. It is null if none is set, so that `tenant_id =` it is true for no row. The
-- nil UUID is no tenant.
create function pillarbox.tenant() returns uuid
language sql stable parallel safe
return nullif(
  nullif(current_setting('pillarbox'::text || '.tenant'::text, true), ''::text)::uuid,
  '00000000-0000-0000-0000-000000000000'::uuid);

-- The tables with rows of tenants, the busiest first. `own_rows` are those of the tenant of the transaction. Where it is null, a role
-- that is bound to a tenant sees no row. A test compares this list with the tables of the schema.
create function pillarbox.tables_of_tenants() returns table (name name, own_rows text)
language sql immutable
as $$
  values
    ('outbox_events'::name, 'tenant_id = (select pillarbox.tenant())'),
    ('leases', null),
    ('adopted', 'tenant_id = (select pillarbox.tenant())'),
    ('import_failures', null),
    ('over_quota', null),
    ('quotas', null),
    ('role_bounds', null),
    ('audit', 'tenant_id = (select pillarbox.tenant())')
$$;

-- Is row-level security on?
create function pillarbox.has_row_security() returns boolean
language sql stable
return (select relrowsecurity from pg_class where oid = 'pillarbox.outbox_events'::regclass);

-- The roles that have one of these duties, sorted. A role that was dropped has none.
create function pillarbox.roles_on(duties text[]) returns oid[]
language sql stable set search_path = pg_catalog, pg_temp
as $$
  select coalesce(array_agg(distinct r.oid), '{}')
  from pillarbox.role_bounds b join pg_roles r on r.oid = b.role
  where b.duty = any(duties)
$$;

-- Gives a policy these roles, which are sorted. Without a role there is no policy. One that has these roles is left alone, because a
-- change waits until no transaction uses the table.
create function pillarbox.set_policy(relation regclass, policy name, roles oid[], rows text) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
declare
  present constant oid[] := array(
    select distinct r from pg_policy p cross join lateral unnest(p.polroles) as r
    where p.polrelid = relation and p.polname = policy order by r
  );
begin
  if present = roles then
    return;
  end if;
  if cardinality(present) > 0 then
    execute format('drop policy %I on %s', policy, relation);
  end if;
  if cardinality(roles) > 0 then
    execute format('create policy %I on %s to %s using (%s) with check (%s)', policy, relation,
      (select string_agg(r::regrole::text, ', ') from unnest(roles) as r), rows, rows);
  end if;
end
$$;

-- Brings the policies in step with the owner of the outbox and the duties in role_bounds. While row-level security is off, there are
-- none.
--
-- `every_tenant` is for the owner, whose functions enqueue and count, and for the roles that work for all tenants. Its condition is a
-- constant, which PostgreSQL drops when it plans a statement. `own_tenant` is for the roles of an API. `every_saga` is there because
-- the policies of orchestrators would hide every saga from a role that is none.
-- Locks: the tables whose policies change, in every mode.
create function pillarbox.keep_policies() returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
declare
  every_tenant oid[] := '{}';
  own_tenant oid[] := '{}';
  every_saga oid[] := '{}';
  owner constant oid := (select relowner from pg_class where oid = 'pillarbox.outbox_events'::regclass);
  secured record;
begin
  if pillarbox.has_row_security() then
    every_tenant := array(
      select distinct r from unnest(owner || pillarbox.roles_on('{dispatcher, writer, api_any_tenant}'::text[])) as r order by r
    );
    own_tenant := pillarbox.roles_on('{api}'::text[]);
    every_saga := pillarbox.roles_on('{api_any_tenant}'::text[]);
  end if;
  for secured in select ('pillarbox.' || t.name)::regclass as relation, t.own_rows from pillarbox.tables_of_tenants() as t loop
    perform pillarbox.set_policy(secured.relation, 'every_tenant'::name, every_tenant, 'true'::text);
    if secured.own_rows is not null then
      perform pillarbox.set_policy(secured.relation, 'own_tenant'::name, own_tenant, secured.own_rows);
    end if;
  end loop;
  perform pillarbox.set_policy('pillarbox.sagas'::regclass, 'every_saga'::name, every_saga, 'true'::text);
  perform pillarbox.set_policy('pillarbox.saga_log'::regclass, 'every_saga'::name, every_saga, 'true'::text);
end
$$;

-- Switches row-level security on or off. Returns whether it was on. `force` is for the owner: without it, no policy would bind its
-- functions, and a policy that is missing would not be noticed.
-- Locks: all of the tables, in every mode.
create function pillarbox.set_row_security(wanted boolean) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
declare
  was_on constant boolean := pillarbox.has_row_security();
  bound constant text := (
    select string_agg(r::regrole::text, ', ') from unnest(pillarbox.roles_on('{api, api_any_tenant}'::text[])) as r
  );
  secured regclass;
begin
  if bound is not null and not wanted then
    raise exception using
      errcode = 'object_in_use',
      message = format('row-level security stays on: it confines the roles of an API: %s (run: pillarbox revoke api ROLE)', bound);
  end if;
  for secured in
    select c.oid::regclass from pillarbox.tables_of_tenants() as t join pg_class c on c.oid = ('pillarbox.' || t.name)::regclass
    where (c.relrowsecurity and c.relforcerowsecurity) <> wanted
  loop
    if wanted then
      execute format('alter table %s enable row level security, force row level security', secured);
    else
      execute format('alter table %s disable row level security, no force row level security', secured);
    end if;
  end loop;
  perform pillarbox.keep_policies();
  return was_on;
end
$$;

-- The lease of a row in flight. For roles that may not read the leases, which have the ids of rows of all tenants.
create function pillarbox.lease_of(claim uuid, event uuid) returns table (until timestamptz, updated_at timestamptz)
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$
  select l.until, l.updated_at from pillarbox.leases l where l.claim_id = claim and event = any(l.rows) limit 1
$$;

-- The rows of the tenant of the transaction that are in flight, or were when a worker died, up to a limit. For the same roles. Rows with
-- a lease of their own are few, so they are all read; the planner could take the index of the tenant's rows for them.
create function pillarbox.in_flight(most bigint) returns table (id uuid)
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$
  select e.id from pillarbox.leases l cross join lateral unnest(l.rows) as r (id) cross join lateral (
    select o.id from pillarbox.outbox_events o
    where o.id = r.id and o.claim_id = l.claim_id and o.status || '' = 'processing' and not o.own_lease
      and o.tenant_id = (select pillarbox.tenant())
    limit 1
  ) as e
  union all
  select e.id from (
    select o.id, o.tenant_id from pillarbox.outbox_events o where o.own_until >= '-infinity' order by o.own_until offset 0
  ) as e
  where e.tenant_id = (select pillarbox.tenant())
  limit most
$$;

revoke all on function
  pillarbox.tenant, pillarbox.tables_of_tenants, pillarbox.has_row_security, pillarbox.roles_on, pillarbox.set_policy,
  pillarbox.keep_policies, pillarbox.set_row_security, pillarbox.lease_of, pillarbox.in_flight
from public;

-- 11. Samples
-- -----------

-- What the tables held at one moment, for the metrics of all workers: docs/operations/metrics.md. One row.
create table pillarbox.samples (
  one      boolean primary key default true check (one),
  -- Who takes or took it.
  worker   uuid not null,
  -- When the next is due. While one is taken: when the worker's turn is over.
  due_at   timestamptz not null,
  -- Up to how many rows are counted: less after a sample that took too long.
  cap      bigint not null,
  -- The newest one, and the time of its snapshot.
  sample   jsonb,
  taken_at timestamptz
) with (fillfactor = 50);

-- What the audit is too long to be asked for: how often each of these was done.
create table pillarbox.totals (
  what  text collate "C" primary key,
  count bigint not null
) with (fillfactor = 50);

-- Counts rows that an operator retried. Operators are many and have roles of their own, which may write no total.
-- Locks: the total, until the transaction ends. So it is the last statement that locks something.
create function pillarbox.count_retries(retried bigint) returns void
language sql volatile security definer set search_path = pg_catalog, pg_temp
as $$
  insert into pillarbox.totals as t (what, count) select 'manual_retries'::text, retried where retried > 0::bigint
  on conflict (what) do update set count = t.count + excluded.count
$$;

-- Sagas that have not ended, by kind and status; reads at most `most` of each status. A dispatcher may read no sagas.
-- Index: sagas_open.
create function pillarbox.open_sagas(most bigint) returns table (name text, status text, sagas bigint)
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$
  select s.name, s.status, count(*) from (
    (select name, status from pillarbox.sagas where status = 'running'::text limit open_sagas.most)
    union all
    (select name, status from pillarbox.sagas where status = 'compensating'::text limit open_sagas.most)
  ) as s
  group by s.name, s.status
$$;

revoke all on function pillarbox.count_retries, pillarbox.open_sagas from public;

-- 12. Retention
-- -------------

-- How long rows are kept after their end: docs/operations/retention.md, docs/adr/0023-retention.md.

-- Delivered rows by namespace and time. Rows that a worker settles together have one time, and share an entry.
create index outbox_events_delivered on pillarbox.outbox_events (namespace, delivered_at)
  where open is null;

-- Which worker prunes a scope: one at a time, by a lease.
create table pillarbox.pruners (
  -- '' for all namespaces, or a hash of their names.
  scope        text collate "C" primary key,
  owner        uuid not null,
  leased_until timestamptz not null
) with (fillfactor = 50);

create index sagas_ended on pillarbox.sagas (updated_at) where status in ('completed', 'compensated');

-- A dispatcher removes sagas and marks with two functions. So it reads neither, and cannot lock these tables.

-- Removes sagas that ended longer than `age` ago, with their logs, the oldest first. Returns how many.
-- Locks: the sagas; those that are locked by others are skipped. Index: sagas_ended.
create function pillarbox.prune_sagas(namespaces text[], age interval, most int) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  gone bigint;
begin
  delete from pillarbox.sagas where seq = any(array(
    select seq from pillarbox.sagas
    where status in ('completed', 'compensated') and updated_at < now() - age
      and (namespaces is null or namespace = any(namespaces))
    order by updated_at limit most for update skip locked
  ));
  get diagnostics gone = row_count;
  return gone;
end
$$;

-- Removes marks of all consumers that are older than `age`: from the last consumer down, or from before this one, `most` of them and
-- of a hundred consumers. Returns how many, whether there is more, and before which consumer.
-- Locks: the marks; those that are locked by others are skipped. Index: inbox_old, with one probe for each consumer.
create function pillarbox.prune_marks(
  inout before text, age interval, most int, out gone bigint, out more boolean
)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  name text;
  done bigint;
begin
  gone := 0;
  more := true;
  for n in 1..100 loop
    if before is null then
      select consumer into name from pillarbox.inbox order by consumer desc, handled_at desc limit 1;
    else
      select consumer into name from pillarbox.inbox where consumer < before order by consumer desc, handled_at desc limit 1;
    end if;
    if not found then
      more := false;
      return;
    end if;
    delete from pillarbox.inbox where consumer = name and event_id = any(array(
      select event_id from pillarbox.inbox where consumer = name and handled_at < now() - age
      order by handled_at limit most - gone for update skip locked
    ));
    get diagnostics done = row_count;
    gone := gone + done;
    if gone >= most then
      return; -- the rest of this consumer is for the next call
    end if;
    before := name;
  end loop;
end
$$;

revoke all on function pillarbox.prune_sagas, pillarbox.prune_marks from public;
