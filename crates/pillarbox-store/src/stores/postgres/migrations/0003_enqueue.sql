-- Enqueue for every language: the checks of the Rust library, with the same sentences, and a row in the caller's
-- transaction. docs/producers/README.md is the page for those who call.
--
-- The two functions that producers call run with the rights of the outbox's owner, so that a role may enqueue without
-- being able to touch the table. What they call is nobody else's.
--
-- Functions in SQL without a query inside are written into the statement that names them, so that the checks have one
-- home and cost no call. They stay so only while they have no SET clause and no subquery.

-- What came of enqueuing one event.
create type pillarbox.enqueued as (id uuid, is_new boolean);

-- What is wrong with a name, if anything is.
create function pillarbox.name_refusal(field text, name text) returns text
language sql stable parallel safe
as $$
  select case
    when name = '' then format('`%s` is empty; give it a name such as "orders"', field)
    when octet_length(name) > 1024 then format('`%s` is %s bytes long; the limit is 1024', field, octet_length(name))
  end
$$;

-- What is wrong with headers, name by name: for those that are large, or have a name that is empty.
create function pillarbox.headers_refusal(headers jsonb) returns text
language sql stable parallel safe
as $$
  select coalesce(
    min(pillarbox.name_refusal('headers', name)),
    case when sum(octet_length(name) + octet_length(value)) > 65536
      then format('`headers` is %s bytes long; the limit is 65536', sum(octet_length(name) + octet_length(value)))
    end
  )
  from jsonb_each_text(headers) as header (name, value)
$$;

-- How many bytes of JSON are sent. What takes less than 1 MiB as jsonb is not written out to be measured: it can only
-- be over the limit by numbers such as 1e9999.
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

-- How many bytes a payload may have: 16 MiB, unless the session's setting says otherwise (such as '64 MB'). The name of
-- a setting is put together, because another schema's name takes the place of ours wherever a dot follows it.
create function pillarbox.max_payload() returns bigint
language sql stable parallel safe
as $$
  select coalesce(pg_size_bytes(nullif(current_setting('pillarbox' || '.max_payload', true), '')), 16777216)
$$;

-- Why an event is refused, or null: the first thing that is wrong, in the words and in the order of the Rust library.
-- Whoever changes one changes both; a test compares them.
create function pillarbox.refusal(
  namespace text, topic text, event_type text, event_version int, aggregate_type text, aggregate_id text,
  tenant_id uuid, dedupe_key text, ordering_key text, severity text, payload jsonb, body bytea, content_type text,
  content_encoding text, headers jsonb, destination text, deliver_at timestamptz
) returns text
language sql stable parallel safe
as $$
  select coalesce(
    pillarbox.name_refusal('namespace', coalesce(namespace, '')),
    pillarbox.name_refusal('topic', coalesce(topic, '')),
    pillarbox.name_refusal('event_type', event_type),
    pillarbox.name_refusal('aggregate_type', aggregate_type),
    pillarbox.name_refusal('aggregate_id', aggregate_id),
    pillarbox.name_refusal('dedupe_key', dedupe_key),
    pillarbox.name_refusal('ordering_key', ordering_key),
    pillarbox.name_refusal('severity', severity),
    pillarbox.name_refusal('content_type', content_type),
    pillarbox.name_refusal('content_encoding', content_encoding),
    pillarbox.name_refusal('destination', destination),
    case
      when event_version < 1 then format('`event_version` is %s; versions count from 1', event_version)
      when destination = 'unrouted' then
        '`destination` is "unrouted", which is where events wait that no route leads anywhere; name another'
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
      when body is not null and payload not in ('{}', 'null') then
        '`payload` and `body` exclude each other: an event is JSON or bytes; give one of them'
      when pillarbox.payload_length(payload, body) > pillarbox.max_payload() then
        format('the payload is %s bytes; the limit is %s (raise `max_payload`, or send a reference to the data)',
          pillarbox.payload_length(payload, body), pillarbox.max_payload())
    end
  )
$$;

-- Ends the call with a sentence, and with the event's place where there are several.
create function pillarbox.refuse(refusal text, place bigint) returns void
language plpgsql volatile
as $$
begin
  raise exception using
    errcode = 'invalid_parameter_value',
    message = refusal,
    hint = format('Nothing was written. Roll back, mend %s and try again.',
      coalesce('event ' || place || ' of the array', 'the event'));
end
$$;

-- Ends the call when the event that has the dedupe key went away whenever we looked.
create function pillarbox.vanished() returns void
language plpgsql volatile
as $$
begin
  raise exception using
    errcode = 'serialization_failure',
    message = 'an event with this dedupe key was there and is not to be seen; try the transaction again';
end
$$;

-- The trace that the caller's transaction belongs to, as headers, if the session's settings say so. What is no
-- traceparent as the W3C has it is left alone, and so is a tracestate that nobody is asked to pass on.
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

-- Headers with a trace in them, unless they name one of their own. A state without its parent belongs to neither.
create function pillarbox.traced(headers jsonb, trace jsonb) returns jsonb
language sql stable parallel safe
as $$
  select case
    when trace = '{}' or jsonb_typeof(headers) <> 'object' or strpos(lower(headers::text), '"traceparent": ') > 0
      then headers
    else headers - 'tracestate' || trace
  end
$$;

-- Enqueues one event in the caller's transaction. What is null is as if it were not given.
-- Locks: the new row, and its dedupe key until the transaction ends; if serialised, its ordering key too.
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
  refusal text;
  result pillarbox.enqueued;
begin
  payload := coalesce(payload, '{}');
  event_version := coalesce(event_version, 1);
  headers := coalesce(headers, '{}');
  headers := pillarbox.traced(headers, trace);
  refusal := pillarbox.refusal(
    namespace, topic, event_type, event_version, aggregate_type, aggregate_id, tenant_id, dedupe_key, ordering_key,
    severity, payload, body, content_type, content_encoding, headers, destination, deliver_at);
  if refusal is not null then
    perform pillarbox.refuse(refusal, null);
  end if;
  if body is not null then
    payload := 'null';
  end if;
  if serialised and ordering_key is not null then
    -- As sql/serialise.sql does it.
    perform pg_advisory_xact_lock(hashtextextended(namespace || E'\x1f' || ordering_key, 8101531));
  end if;
  -- Whoever had the key may be gone when we look for it.
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

-- Enqueues many events in the caller's transaction: an array of objects whose keys are the arguments of
-- pillarbox.enqueue, with `body` in base64. All of them or, by an error, none.
-- Locks: the new rows, and their dedupe keys until the transaction ends. The keys are taken in their own order,
-- whatever order the caller has, so that two callers cannot wait for each other; `seq` is drawn first, in the caller's
-- order.
create function pillarbox.enqueue_many(events jsonb, serialised boolean default false)
returns table (ord bigint, id uuid, is_new boolean)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  known constant text[] := '{namespace, topic, payload, event_type, event_version, aggregate_type, aggregate_id,
    tenant_id, dedupe_key, ordering_key, severity, headers, destination, deliver_at, body, content_type,
    content_encoding, id}';
  trace constant jsonb := pillarbox.trace();
  refusal text;
  place bigint;
  -- By place in the array: the event's id, and whether this call wrote it. Null while nobody knows.
  ids uuid[];
  news boolean[];
begin
  if events is null or jsonb_typeof(events) <> 'array' then
    perform pillarbox.refuse('`events` is no JSON array; give an array of objects', null);
  end if;
  select case
      when jsonb_typeof(event) <> 'object' then format('event %s of the array is no JSON object', ord)
      else format('event %s of the array has the key `%s`, which is none of: %s', ord,
        (select min(key) from jsonb_object_keys(event - known) as key), array_to_string(known, ', '))
    end, ord
  into refusal, place
  from jsonb_array_elements(events) with ordinality as given (event, ord)
  where case when jsonb_typeof(event) = 'object' then event - known <> '{}' else true end
  order by ord limit 1;
  if refusal is not null then
    perform pillarbox.refuse(refusal, place);
  end if;

  if serialised then
    -- As sql/serialise.sql does it.
    perform pg_advisory_xact_lock(lock) from (
      select distinct hashtextextended(namespace || E'\x1f' || ordering_key, 8101531) as lock
      from jsonb_to_recordset(events) as event (namespace text, ordering_key text)
      where ordering_key is not null
      order by lock
    ) as locks;
  end if;

  -- Whoever had a key may be gone when we look for it.
  for look in 1..3 loop
    with event as materialized (
      select
        id, namespace, topic, event_type, coalesce(event_version, 1) as event_version, aggregate_type, aggregate_id,
        tenant_id, dedupe_key, ordering_key, severity, coalesce(whole -> 'payload', '{}') as payload,
        decode(body, 'base64') as body, content_type, content_encoding,
        pillarbox.traced(coalesce(headers, '{}'), trace) as headers,
        destination, deliver_at, known_id, known_new, ord
      from rows from (
        jsonb_array_elements(events),
        jsonb_to_recordset(events) as (
          id uuid, namespace text, topic text, event_type text, event_version int, aggregate_type text,
          aggregate_id text, tenant_id uuid, dedupe_key text, ordering_key text, severity text, body text,
          content_type text, content_encoding text, headers jsonb, destination text, deliver_at timestamptz),
        unnest(ids, news)
      ) with ordinality as given (
        whole, id, namespace, topic, event_type, event_version, aggregate_type, aggregate_id, tenant_id, dedupe_key,
        ordering_key, severity, body, content_type, content_encoding, headers, destination, deliver_at, known_id,
        known_new, ord)
    ), numbered as materialized (
      select event.*, case when known_id is null then nextval('pillarbox.outbox_seq') end as seq,
        pillarbox.refusal(
          namespace, topic, event_type, event_version, aggregate_type, aggregate_id, tenant_id, dedupe_key,
          ordering_key, severity, payload, body, content_type, content_encoding, headers, destination, deliver_at
        ) as refusal
      from event
    ), written as (
      insert into pillarbox.outbox_events (
        id, seq, namespace, topic, event_type, event_version, aggregate_type, aggregate_id, tenant_id, dedupe_key,
        ordering_key, severity, payload, body, content_type, content_encoding, headers, destination, next_attempt_at
      )
      select
        coalesce(id, pillarbox.uuidv7()), seq, namespace, topic, event_type, event_version, aggregate_type,
        aggregate_id, tenant_id, dedupe_key, ordering_key, severity,
        case when body is null then payload else 'null' end, body, content_type, content_encoding, headers,
        destination, greatest(deliver_at, now())
      from numbered
      where seq is not null and not exists (select from numbered where refusal is not null)
      order by dedupe_key nulls first, namespace, topic, seq
      on conflict (namespace, topic, dedupe_key) where dedupe_key is not null do nothing
      returning seq, id
    )
    select
      array_agg(coalesce(known_id, written.id) order by ord),
      array_agg(case when known_id is not null then known_new when written.id is not null then true end order by ord),
      (array_agg(refusal order by ord) filter (where refusal is not null))[1],
      min(ord) filter (where refusal is not null)
    into ids, news, refusal, place
    from numbered left join written using (seq);
    if refusal is not null then
      perform pillarbox.refuse(refusal, place);
    end if;
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
  pillarbox.name_refusal, pillarbox.headers_refusal, pillarbox.payload_length, pillarbox.max_payload, pillarbox.refusal,
  pillarbox.refuse, pillarbox.vanished, pillarbox.trace, pillarbox.traced, pillarbox.enqueue, pillarbox.enqueue_many
from public;

comment on function pillarbox.enqueue is
  'Enqueues one event in this transaction: select * from enqueue(namespace => ..., topic => ..., payload => ...)';
comment on function pillarbox.enqueue_many is
  'Enqueues an array of events in this transaction; the keys of each are the arguments of enqueue';
