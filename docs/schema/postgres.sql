CREATE SCHEMA pillarbox;

CREATE TYPE pillarbox.enqueued AS (
	id uuid,
	is_new boolean
);

CREATE FUNCTION pillarbox.authorise(namespace text, tenant_id uuid, destination text) RETURNS void
    LANGUAGE plpgsql STABLE
    AS $$
begin
  if not "pillarbox".may_enqueue(namespace, tenant_id, destination) then
    raise exception using
      errcode = 'insufficient_privilege',
      message = format('role "%s" may not enqueue this event: namespace "%s", %s, %s',
        coalesce("pillarbox".caller(), session_user), left(namespace, 1024),
        coalesce('tenant ' || tenant_id, 'no tenant'),
        coalesce('destination "' || left(destination, 1024) || '"', 'no destination')),
      hint = case when "pillarbox".caller() is null
        then format('A superuser says for whom it enqueues: set role %I, or a producer.', current_user)
        else 'The owner of the outbox allows it with `pillarbox grant producer ROLE --namespace NAME [--tenant ID] [--destination NAME]`.'
      end;
  end if;
end
$$;

CREATE FUNCTION pillarbox.authorise_consumer(consumer text) RETURNS void
    LANGUAGE plpgsql STABLE
    AS $$
declare
  caller constant name := "pillarbox".caller();
  own constant text[] := "pillarbox".own_names('consumer'::text, caller);
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

CREATE FUNCTION pillarbox.role_of_session() RETURNS name
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN CASE WHEN (current_setting('role'::text) <> 'none'::text) THEN (current_setting('role'::text))::name ELSE SESSION_USER END;

CREATE FUNCTION pillarbox.caller() RETURNS name
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN CASE WHEN ((current_setting('role'::text) <> 'none'::text) OR (SESSION_USER = CURRENT_USER) OR (NOT (EXISTS (SELECT FROM pg_roles WHERE ((pg_roles.rolname = SESSION_USER) AND pg_roles.rolsuper))))) THEN pillarbox.role_of_session() ELSE NULL::name END;

CREATE FUNCTION pillarbox.check_quotas() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
declare
  since constant timestamptz := clock_timestamp() - interval '10 minutes';
  exceeded "pillarbox".over_quota;
begin
  select o.* into exceeded
  from (
    select distinct e.tenant_id::text as tenant from enqueued e
    where e.tenant_id is not null and e.parent_id is null and e.adopted_table is null
  ) as writer cross join lateral (
    select * from "pillarbox".over_quota q where q.kind = 'tenant' and q.name = writer.tenant limit 1
  ) as o
  where o.counted_at > since
  limit 1;
  if not found then
    select o.* into exceeded
    from (
      select distinct e.enqueued_by as role from enqueued e
      where e.enqueued_by is not null and e.parent_id is null and e.adopted_table is null
    ) as writer cross join lateral "pillarbox".memberships(writer.role) as holder (name) cross join lateral (
      select * from "pillarbox".over_quota q where q.kind = 'role' and q.name = holder.name limit 1
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

CREATE FUNCTION pillarbox.count_pending(kind text, name text, most bigint) RETURNS bigint
    LANGUAGE plpgsql STABLE
    AS $$
begin
  if kind = 'tenant' then
    return (select count(*) from (
      select from "pillarbox".outbox_events e where e.open < 2 and e.tenant_id = count_pending.name::uuid limit most + 1
    ) as pending);
  end if;
  return (select count(*) from (
    select from "pillarbox".outbox_events e
    where e.open < 2 and e.enqueued_by = any(array(select "pillarbox".members(count_pending.name))) limit most + 1
  ) as pending);
end
$$;

CREATE FUNCTION pillarbox.count_retries(retried bigint) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
  insert into "pillarbox".totals as t (what, count) select 'manual_retries'::text, retried where retried > 0::bigint
  on conflict (what) do update set count = t.count + excluded.count
$$;

CREATE FUNCTION pillarbox.decompressed_size(payload jsonb) RETURNS integer
    LANGUAGE plpgsql STABLE
    AS $$
begin
  return pg_column_size(payload #> '{}');
exception when others then
  return 0;
end
$$;

CREATE FUNCTION pillarbox.element_refusal(element jsonb, ord bigint) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
  select case
    when jsonb_typeof(element) <> 'object' then format('event %s of the array is no JSON object', ord)
    else format('event %s of the array has the key `%s`, which is none of: %s', ord,
      (select min(key) from jsonb_object_keys(element - "pillarbox".known_keys()) as key),
      array_to_string("pillarbox".known_keys(), ', '))
  end
$$;

CREATE FUNCTION pillarbox.enqueue(namespace text, topic text, payload jsonb DEFAULT '{}'::jsonb, event_type text DEFAULT NULL::text, event_version integer DEFAULT 1, aggregate_type text DEFAULT NULL::text, aggregate_id text DEFAULT NULL::text, tenant_id uuid DEFAULT NULL::uuid, dedupe_key text DEFAULT NULL::text, ordering_key text DEFAULT NULL::text, severity text DEFAULT NULL::text, headers jsonb DEFAULT '{}'::jsonb, destination text DEFAULT NULL::text, deliver_at timestamp with time zone DEFAULT NULL::timestamp with time zone, body bytea DEFAULT NULL::bytea, content_type text DEFAULT NULL::text, content_encoding text DEFAULT NULL::text, id uuid DEFAULT NULL::uuid, serialised boolean DEFAULT false) RETURNS pillarbox.enqueued
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  trace constant jsonb := "pillarbox".trace();
  result "pillarbox".enqueued;
begin
  payload := coalesce(payload, '{}');
  event_version := coalesce(event_version, 1);
  headers := coalesce(headers, '{}');
  headers := "pillarbox".traced(headers, trace);
  perform "pillarbox".refuse("pillarbox".refusal(
    id, namespace, topic, event_type, event_version, aggregate_type, aggregate_id, tenant_id, dedupe_key, ordering_key,
    severity, payload, body, content_type, content_encoding, headers, destination, deliver_at), 0::bigint);
  if not "pillarbox".may_enqueue(namespace, tenant_id, destination) then
    perform "pillarbox".authorise(namespace, tenant_id, destination);
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
    insert into "pillarbox".outbox_events (
      id, namespace, topic, event_type, event_version, aggregate_type, aggregate_id, tenant_id, dedupe_key,
      ordering_key, severity, payload, body, content_type, content_encoding, headers, destination, next_attempt_at
    ) values (
      coalesce(enqueue.id, "pillarbox".uuidv7()), namespace, topic, event_type, event_version, aggregate_type,
      aggregate_id, tenant_id, dedupe_key, ordering_key, severity, payload, body, content_type, content_encoding,
      headers, destination, greatest(deliver_at, now())
    )
    on conflict (namespace, topic, dedupe_key) where dedupe_key is not null do nothing
    returning id, true into result;
    if found then
      return result;
    end if;
    select e.id, false into result from "pillarbox".outbox_events e
    where e.namespace = enqueue.namespace and e.topic = enqueue.topic and e.dedupe_key = enqueue.dedupe_key;
    if found then
      return result;
    end if;
  end loop;
  perform "pillarbox".vanished();
end
$$;

COMMENT ON FUNCTION pillarbox.enqueue(namespace text, topic text, payload jsonb, event_type text, event_version integer, aggregate_type text, aggregate_id text, tenant_id uuid, dedupe_key text, ordering_key text, severity text, headers jsonb, destination text, deliver_at timestamp with time zone, body bytea, content_type text, content_encoding text, id uuid, serialised boolean) IS 'Enqueues one event in this transaction: select * from enqueue(namespace => ..., topic => ..., payload => ...)';

CREATE FUNCTION pillarbox.enqueue_many(events jsonb, serialised boolean DEFAULT false) RETURNS TABLE(ord bigint, id uuid, is_new boolean)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
#variable_conflict use_column
declare
  trace constant jsonb := "pillarbox".trace();
  -- By position in the array: the event's `seq`, its id, and whether this call inserted it. Null until known.
  seqs bigint[];
  ids uuid[];
  news boolean[];
begin
  if events is null or jsonb_typeof(events) <> 'array' then
    perform "pillarbox".refuse('`events` is no JSON array; give an array of objects'::text, 0::bigint);
  end if;
  if events = '[]' then
    return;
  end if;
  -- Before anything is looked up: the answer about a duplicate must not tell what is in another namespace.
  if not pg_has_role("pillarbox".role_of_session(), current_user, 'usage') or "pillarbox".caller() is null then
    perform "pillarbox".authorise(asked.namespace, asked.tenant_id, asked.destination) from (
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
      from "pillarbox".read_events(events, trace)
      where ordering_key is not null
      order by lock
    ) as locks;
  end if;

  if not events @? '$[*].dedupe_key' then
    return query
      with written as (
        insert into "pillarbox".outbox_events (
          id, namespace, topic, event_type, event_version, aggregate_type, aggregate_id, tenant_id, ordering_key,
          severity, payload, body, content_type, content_encoding, headers, destination, next_attempt_at
        )
        select
          coalesce(id, "pillarbox".uuidv7()), namespace, topic, event_type, event_version, aggregate_type, aggregate_id,
          tenant_id, ordering_key, severity, payload, body, content_type, content_encoding, headers, destination,
          greatest(deliver_at, now())
        from "pillarbox".read_events(events, trace)
        returning seq, id
      )
      select row_number() over (order by seq), id, true from written;
    return;
  end if;

  -- Before the first number is drawn, as an INSERT does it: claims of keys count on it (watermark.rs).
  lock table "pillarbox".outbox_events in row exclusive mode;
  -- The event with the same key may be deleted before it is looked up.
  for look in 1..3 loop
    seqs := array(
      select case when ids[n] is null then nextval('"pillarbox".outbox_seq') end
      from generate_series(1, jsonb_array_length(events)) as n);
    with written as (
      insert into "pillarbox".outbox_events (
        id, seq, namespace, topic, event_type, event_version, aggregate_type, aggregate_id, tenant_id, dedupe_key,
        ordering_key, severity, payload, body, content_type, content_encoding, headers, destination, next_attempt_at
      )
      select
        coalesce(id, "pillarbox".uuidv7()), seqs[ord], namespace, topic, event_type, event_version, aggregate_type,
        aggregate_id, tenant_id, dedupe_key, ordering_key, severity, payload, body, content_type, content_encoding,
        headers, destination, greatest(deliver_at, now())
      from "pillarbox".read_events(events, trace)
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
    left join "pillarbox".outbox_events e
      on known_id is null and e.namespace = given.namespace and e.topic = given.topic
        and e.dedupe_key = given.dedupe_key;
    exit when array_position(ids, null) is null;
  end loop;
  if array_position(ids, null) is not null then
    perform "pillarbox".vanished();
  end if;
  return query select result.ord, result.id, result.is_new
    from unnest(ids, news) with ordinality as result (id, is_new, ord);
end
$_$;

COMMENT ON FUNCTION pillarbox.enqueue_many(events jsonb, serialised boolean) IS 'Enqueues an array of events in this transaction; the keys of each are the arguments of enqueue';

CREATE FUNCTION pillarbox.headers_fit(headers jsonb) RETURNS boolean
    LANGUAGE plpgsql STABLE PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  return coalesce(sum(octet_length(name) + octet_length(value)) <= 65536 and max(octet_length(name)) <= 1024, true)
    from jsonb_each_text(headers) as header (name, value);
end
$$;

CREATE FUNCTION pillarbox.lane(key text) RETURNS smallint
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN (((('x'::text || substr(md5(key), 1, 3)))::bit(12))::integer)::smallint;

CREATE FUNCTION pillarbox.payload_fits(payload jsonb, body bytea) RETURNS boolean
    LANGUAGE plpgsql STABLE PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  return coalesce(octet_length(body), octet_length(payload::text)) <= "pillarbox".max_payload();
end
$$;

CREATE FUNCTION pillarbox.uuidv7() RETURNS uuid
    LANGUAGE sql PARALLEL SAFE
    RETURN (encode(set_bit(set_bit(OVERLAY(uuid_send(gen_random_uuid()) PLACING SUBSTRING(int8send(((EXTRACT(epoch FROM clock_timestamp()) * (1000)::numeric))::bigint) FROM 3) FROM 1 FOR 6), (52)::bigint, 1), (53)::bigint, 1), 'hex'::text))::uuid;

CREATE TABLE pillarbox.outbox_events (
    id uuid DEFAULT pillarbox.uuidv7() NOT NULL,
    seq bigint NOT NULL,
    parent_id uuid,
    namespace text NOT NULL COLLATE pg_catalog."C",
    topic text NOT NULL COLLATE pg_catalog."C",
    event_type text,
    event_version integer DEFAULT 1 NOT NULL,
    aggregate_type text,
    aggregate_id text,
    tenant_id uuid,
    dedupe_key text COLLATE pg_catalog."C",
    ordering_key text COLLATE pg_catalog."C",
    unordered boolean DEFAULT false NOT NULL,
    lane smallint GENERATED ALWAYS AS (
CASE
    WHEN unordered THEN NULL::smallint
    ELSE pillarbox.lane(ordering_key)
END) STORED,
    severity text,
    payload jsonb NOT NULL,
    body bytea,
    content_type text,
    content_encoding text,
    headers jsonb DEFAULT '{}'::jsonb NOT NULL,
    destination text COLLATE pg_catalog."C",
    status text DEFAULT 'pending'::text NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    max_attempts integer,
    next_attempt_at timestamp with time zone DEFAULT now() NOT NULL,
    locked_by uuid,
    locked_until timestamp with time zone,
    claim_id uuid,
    last_error text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    delivered_at timestamp with time zone,
    adopted_table text COLLATE pg_catalog."C",
    enqueued_by text COLLATE pg_catalog."C",
    own_lease boolean DEFAULT false NOT NULL,
    by_key boolean DEFAULT false NOT NULL,
    open smallint GENERATED ALWAYS AS (
CASE
    WHEN (status = ANY (ARRAY['pending'::text, 'processing'::text])) THEN ((by_key OR (next_attempt_at > created_at)))::integer
    WHEN (status = 'dead'::text) THEN 2
    WHEN (status <> 'delivered'::text) THEN 3
    ELSE NULL::integer
END) STORED,
    own_until timestamp with time zone GENERATED ALWAYS AS (
CASE
    WHEN ((status = 'processing'::text) AND (own_lease OR (claim_id IS NULL))) THEN COALESCE(locked_until, '-infinity'::timestamp with time zone)
    ELSE NULL::timestamp with time zone
END) STORED,
    spent integer GENERATED ALWAYS AS (
CASE
    WHEN (status <> 'pending'::text) THEN NULL::integer
    WHEN (attempts >= max_attempts) THEN 2147483647
    WHEN ((attempts > 0) AND (max_attempts IS NULL)) THEN attempts
    ELSE NULL::integer
END) STORED,
    CONSTRAINT attempts_are_counted CHECK ((attempts >= 0)),
    CONSTRAINT headers_have_at_most_64_kib CHECK (((updated_at > created_at) OR ((pg_column_size(headers) <= 1024) AND (pg_column_compression(headers) IS NULL)) OR pillarbox.headers_fit(headers))),
    CONSTRAINT ids_of_version_8_are_derived CHECK (((updated_at > created_at) OR (adopted_table IS NOT NULL) OR ((get_byte(uuid_send(id), 6) >> 4) <> 8))),
    CONSTRAINT names_have_at_most_1024_bytes CHECK (((updated_at > created_at) OR ((octet_length(namespace) <= 1024) AND (octet_length(topic) <= 1024) AND (octet_length(event_type) <= 1024) AND (octet_length(aggregate_type) <= 1024) AND (octet_length(aggregate_id) <= 1024) AND (octet_length(dedupe_key) <= 1024) AND (octet_length(ordering_key) <= 1024) AND (octet_length(severity) <= 1024) AND (octet_length(destination) <= 1024) AND (octet_length(content_type) <= 1024) AND (octet_length(content_encoding) <= 1024)))),
    CONSTRAINT outbox_events_destination_check CHECK ((destination <> ''::text)),
    CONSTRAINT outbox_events_headers_check CHECK ((jsonb_typeof(headers) = 'object'::text)),
    CONSTRAINT outbox_events_namespace_check CHECK ((namespace <> ''::text)),
    CONSTRAINT outbox_events_ordering_key_check CHECK ((ordering_key <> ''::text)),
    CONSTRAINT outbox_events_topic_check CHECK ((topic <> ''::text)),
    CONSTRAINT payload_is_within_max_payload CHECK (((updated_at > created_at) OR ((body IS NULL) AND (pg_column_size(payload) <= 1536) AND (pg_column_compression(payload) IS NULL)) OR pillarbox.payload_fits(payload, body))),
    CONSTRAINT times_are_in_the_years_1_to_9999 CHECK (((next_attempt_at >= '0001-01-01 00:00:00+00'::timestamp with time zone) AND (next_attempt_at < '10000-01-01 00:00:00+00'::timestamp with time zone) AND (locked_until >= '0001-01-01 00:00:00+00'::timestamp with time zone) AND (locked_until < '10000-01-01 00:00:00+00'::timestamp with time zone) AND (created_at >= '0001-01-01 00:00:00+00'::timestamp with time zone) AND (created_at < '10000-01-01 00:00:00+00'::timestamp with time zone) AND (updated_at >= '0001-01-01 00:00:00+00'::timestamp with time zone) AND (updated_at < '10000-01-01 00:00:00+00'::timestamp with time zone) AND (delivered_at >= '0001-01-01 00:00:00+00'::timestamp with time zone) AND (delivered_at < '10000-01-01 00:00:00+00'::timestamp with time zone)))
)
WITH (fillfactor='45', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='5000', autovacuum_vacuum_insert_scale_factor='0.1');

CREATE FUNCTION pillarbox.has_row_security() RETURNS boolean
    LANGUAGE sql STABLE
    RETURN (SELECT pg_class.relrowsecurity FROM pg_class WHERE (pg_class.oid = ('pillarbox.outbox_events'::regclass)::oid));

CREATE FUNCTION pillarbox.headers_refusal(headers jsonb) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
  select coalesce(
    min("pillarbox".name_refusal('headers'::text, name)),
    case when sum(octet_length(name) + octet_length(value)) > 65536
      then format('`headers` is %s bytes long; the limit is 65536', sum(octet_length(name) + octet_length(value)))
    end
  )
  from jsonb_each_text(headers) as header (name, value)
$$;

CREATE FUNCTION pillarbox.ids_taken(ids uuid[]) RETURNS SETOF uuid
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
  select e.id from "pillarbox".outbox_events e
  where e.id = any(ids) and "pillarbox".may_enqueue(e.namespace, e.tenant_id, null::text)
$$;

CREATE FUNCTION pillarbox.in_flight(most bigint) RETURNS TABLE(id uuid)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
  select e.id from "pillarbox".leases l cross join lateral unnest(l.rows) as r (id) cross join lateral (
    select o.id from "pillarbox".outbox_events o
    where o.id = r.id and o.claim_id = l.claim_id and o.status || '' = 'processing' and not o.own_lease
      and o.tenant_id = (select "pillarbox".tenant())
    limit 1
  ) as e
  union all
  select e.id from (
    select o.id, o.tenant_id from "pillarbox".outbox_events o where o.own_until >= '-infinity' order by o.own_until offset 0
  ) as e
  where e.tenant_id = (select "pillarbox".tenant())
  limit most
$$;

CREATE FUNCTION pillarbox.is_own_saga(saga bigint, who name) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
  own constant text[] := "pillarbox".own_names('orchestrator'::text, who);
begin
  return exists (select from "pillarbox".sagas s where s.seq = saga and (own is null or s.name = any(own)));
end
$$;

CREATE FUNCTION pillarbox.keep_audit() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$ begin
  raise exception 'the audit is not changed: lines are only added' using errcode = '42501';
end $$;

CREATE FUNCTION pillarbox.keep_policies() RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
  every_tenant oid[] := '{}';
  own_tenant oid[] := '{}';
  every_saga oid[] := '{}';
  owner constant oid := (select relowner from pg_class where oid = '"pillarbox".outbox_events'::regclass);
  secured record;
begin
  if "pillarbox".has_row_security() then
    every_tenant := array(
      select distinct r from unnest(owner || "pillarbox".roles_on('{dispatcher, writer, api_any_tenant}'::text[])) as r order by r
    );
    own_tenant := "pillarbox".roles_on('{api}'::text[]);
    every_saga := "pillarbox".roles_on('{api_any_tenant}'::text[]);
  end if;
  for secured in select ('"pillarbox".' || t.name)::regclass as relation, t.own_rows from "pillarbox".tables_of_tenants() as t loop
    perform "pillarbox".set_policy(secured.relation, 'every_tenant'::name, every_tenant, 'true'::text);
    if secured.own_rows is not null then
      perform "pillarbox".set_policy(secured.relation, 'own_tenant'::name, own_tenant, secured.own_rows);
    end if;
  end loop;
  perform "pillarbox".set_policy('"pillarbox".sagas'::regclass, 'every_saga'::name, every_saga, 'true'::text);
  perform "pillarbox".set_policy('"pillarbox".saga_log'::regclass, 'every_saga'::name, every_saga, 'true'::text);
end
$$;

CREATE FUNCTION pillarbox.known_keys() RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select '{namespace, topic, payload, event_type, event_version, aggregate_type, aggregate_id, tenant_id, dedupe_key,
    ordering_key, severity, headers, destination, deliver_at, body, content_type, content_encoding, id}'::text[]
$$;

CREATE FUNCTION pillarbox.lease_of(claim uuid, event uuid) RETURNS TABLE(until timestamp with time zone, updated_at timestamp with time zone)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
  select l.until, l.updated_at from "pillarbox".leases l where l.claim_id = claim and event = any(l.rows) limit 1
$$;

CREATE FUNCTION pillarbox.max_payload() RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN 16777216;

CREATE FUNCTION pillarbox.may_address(namespace text, who name) RETURNS boolean
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  return pg_has_role(who, current_user, 'usage')
    or has_column_privilege(who, '"pillarbox".outbox_events', 'namespace', 'insert')
    or exists (
      select from "pillarbox".role_bounds b join pg_roles r on r.oid = b.role
      where b.duty = 'producer' and pg_has_role(who, r.oid, 'usage')
        and (b.namespaces is null or may_address.namespace = any(b.namespaces))
    );
end
$$;

CREATE FUNCTION pillarbox.may_enqueue(namespace text, tenant_id uuid, destination text) RETURNS boolean
    LANGUAGE plpgsql STABLE
    AS $$
#variable_conflict use_variable
declare
  role_of_session constant name := "pillarbox".role_of_session();
  bound_role constant regrole := to_regrole(quote_ident(role_of_session::text));
begin
  if pg_has_role(role_of_session, current_user, 'usage') then
    return "pillarbox".caller() is not null;
  end if;
  if exists (
    select from "pillarbox".role_bounds b
    where b.role = bound_role and b.duty = 'producer'
      and (b.namespaces is null or namespace = any(b.namespaces))
      and (b.tenants is null or tenant_id = any(b.tenants))
      and (destination is null or destination = any(b.destinations))
  ) then
    return true;
  end if;
  return exists (
    select from "pillarbox".role_bounds b join pg_roles r on r.oid = b.role
    where b.duty = 'producer' and pg_has_role(role_of_session, r.oid, 'usage')
      and (b.namespaces is null or namespace = any(b.namespaces))
      and (b.tenants is null or tenant_id = any(b.tenants))
      and (destination is null or destination = any(b.destinations))
  );
end
$$;

CREATE FUNCTION pillarbox.members(role text) RETURNS SETOF text
    LANGUAGE sql STABLE
    AS $$
  with recursive member (id) as (
    select r.oid from pg_roles r where r.rolname = members.role
    union
    select m.member from member join pg_auth_members m on m.roleid = member.id
  )
  select r.rolname::text from member join pg_roles r on r.oid = member.id
  union
  select members.role
$$;

CREATE FUNCTION pillarbox.memberships(role text) RETURNS SETOF text
    LANGUAGE sql STABLE
    AS $$
  with recursive upward (id) as (
    select to_regrole(quote_ident(memberships.role))::oid
    union
    select m.roleid from upward join pg_auth_members m on m.member = upward.id
  )
  select coalesce(pg_get_userbyid(id)::text, memberships.role) from upward
$$;

CREATE FUNCTION pillarbox.name_refusal(field text, name text) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
  select case
    when name = '' then format('`%s` is empty; give it a name such as "orders"', field)
    when octet_length(name) > 1024 then format('`%s` is %s bytes long; the limit is 1024', field, octet_length(name))
  end
$$;

CREATE FUNCTION pillarbox.note_role() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
  new.enqueued_by := case when pg_catalog.current_setting('role') operator(pg_catalog.=) 'none'
    then session_user::pg_catalog.text else pg_catalog.current_setting('role') end;
  return new;
end
$$;

CREATE FUNCTION pillarbox.open_sagas(most bigint) RETURNS TABLE(name text, status text, sagas bigint)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
  select s.name, s.status, count(*) from (
    (select name, status from "pillarbox".sagas where status = 'running'::text limit open_sagas.most)
    union all
    (select name, status from "pillarbox".sagas where status = 'compensating'::text limit open_sagas.most)
  ) as s
  group by s.name, s.status
$$;

CREATE FUNCTION pillarbox.own_names(duty text, who name) RETURNS text[]
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
begin
  return case when not bool_or(b.names is null) or count(b.role) = 0 then coalesce(array_agg(name), '{}') end
    from "pillarbox".role_bounds b
    join pg_roles r on r.oid = b.role and pg_has_role(who, r.oid, 'usage')
    left join unnest(b.names) as name on true
    where b.duty = own_names.duty;
end
$$;

CREATE FUNCTION pillarbox.payload_length(payload jsonb, body bytea) RETURNS bigint
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
  select case
    when body is not null then octet_length(body)
    when pg_column_size(payload) > 1048576 or pg_column_compression(payload) is not null
      then octet_length(payload::text)
    else 0
  end::bigint
$$;

CREATE FUNCTION pillarbox.prune_inbox(consumer text, age interval, most integer) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  gone bigint;
begin
  perform "pillarbox".authorise_consumer(prune_inbox.consumer);
  delete from "pillarbox".inbox where ctid = any(array(
    select ctid from "pillarbox".inbox where consumer = prune_inbox.consumer and handled_at < now() - age
    order by handled_at limit most for update skip locked
  )) and consumer = prune_inbox.consumer and handled_at < now() - age;
  get diagnostics gone = row_count;
  return gone;
end
$$;

CREATE FUNCTION pillarbox.prune_marks(INOUT before text, age interval, most integer, OUT gone bigint, OUT more boolean) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  name text;
  done bigint;
begin
  gone := 0;
  more := true;
  for n in 1..100 loop
    if before is null then
      select consumer into name from "pillarbox".inbox order by consumer desc, handled_at desc limit 1;
    else
      select consumer into name from "pillarbox".inbox where consumer < before order by consumer desc, handled_at desc limit 1;
    end if;
    if not found then
      more := false;
      return;
    end if;
    delete from "pillarbox".inbox where consumer = name and event_id = any(array(
      select event_id from "pillarbox".inbox where consumer = name and handled_at < now() - age
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

CREATE FUNCTION pillarbox.prune_sagas(namespaces text[], age interval, most integer) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  gone bigint;
begin
  delete from "pillarbox".sagas where seq = any(array(
    select seq from "pillarbox".sagas
    where status in ('completed', 'compensated') and updated_at < now() - age
      and (namespaces is null or namespace = any(namespaces))
    order by updated_at limit most for update skip locked
  ));
  get diagnostics gone = row_count;
  return gone;
end
$$;

CREATE FUNCTION pillarbox.read_events(events jsonb, trace jsonb) RETURNS TABLE(ord bigint, id uuid, namespace text, topic text, event_type text, event_version integer, aggregate_type text, aggregate_id text, tenant_id uuid, dedupe_key text, ordering_key text, severity text, payload jsonb, body bytea, content_type text, content_encoding text, headers jsonb, destination text, deliver_at timestamp with time zone)
    LANGUAGE sql STABLE
    AS $$
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
      "pillarbox".traced(coalesce(nullif(element -> 'headers', 'null'::jsonb), '{}'::jsonb), trace) as headers,
      element ->> 'destination' as destination, (element ->> 'deliver_at')::timestamptz as deliver_at
    from jsonb_array_elements(events) with ordinality as given (element, ord)
    offset 0
  ) as event
  where "pillarbox".refuse(
    coalesce(
      case when jsonb_typeof(element) <> 'object' or element - "pillarbox".known_keys() <> '{}'
        then "pillarbox".element_refusal(element, ord)
      end,
      "pillarbox".refusal(
        id, namespace, topic, event_type, event_version, aggregate_type, aggregate_id, tenant_id, dedupe_key, ordering_key,
        severity, payload, body, content_type, content_encoding, headers, destination, deliver_at)
    ), ord) is null
$$;

CREATE FUNCTION pillarbox.refusal(id uuid, namespace text, topic text, event_type text, event_version integer, aggregate_type text, aggregate_id text, tenant_id uuid, dedupe_key text, ordering_key text, severity text, payload jsonb, body bytea, content_type text, content_encoding text, headers jsonb, destination text, deliver_at timestamp with time zone) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $_$
  select coalesce(
    "pillarbox".name_refusal('namespace'::text, coalesce(namespace, '')),
    "pillarbox".name_refusal('topic'::text, coalesce(topic, '')),
    "pillarbox".name_refusal('event_type'::text, event_type),
    "pillarbox".name_refusal('aggregate_type'::text, aggregate_type),
    "pillarbox".name_refusal('aggregate_id'::text, aggregate_id),
    "pillarbox".name_refusal('ordering_key'::text, ordering_key),
    "pillarbox".name_refusal('severity'::text, severity),
    "pillarbox".name_refusal('content_type'::text, content_type),
    "pillarbox".name_refusal('content_encoding'::text, content_encoding),
    "pillarbox".name_refusal('dedupe_key'::text, dedupe_key),
    "pillarbox".name_refusal('destination'::text, destination),
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
      then "pillarbox".headers_refusal(headers)
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
      when "pillarbox".payload_length(payload, body) > "pillarbox".max_payload() then
        format('the payload is %s bytes; the limit is %s (raise `max_payload`, or send a reference to the data)',
          "pillarbox".payload_length(payload, body), "pillarbox".max_payload())
    end
  )
$_$;

CREATE FUNCTION pillarbox.refuse(refusal text, place bigint) RETURNS boolean
    LANGUAGE plpgsql STABLE STRICT
    AS $$
begin
  raise exception using
    errcode = 'invalid_parameter_value',
    message = refusal,
    hint = format('Nothing was written. Roll back, mend %s and try again.',
      case when place > 0 then 'event ' || place || ' of the array' else 'the event' end);
end
$$;

CREATE FUNCTION pillarbox.roles_on(duties text[]) RETURNS oid[]
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
  select coalesce(array_agg(distinct r.oid), '{}')
  from "pillarbox".role_bounds b join pg_roles r on r.oid = b.role
  where b.duty = any(duties)
$$;

CREATE FUNCTION pillarbox.set_policy(relation regclass, policy name, roles oid[], rows text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

CREATE FUNCTION pillarbox.set_row_security(wanted boolean) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
  was_on constant boolean := "pillarbox".has_row_security();
  bound constant text := (
    select string_agg(r::regrole::text, ', ') from unnest("pillarbox".roles_on('{api, api_any_tenant}'::text[])) as r
  );
  secured regclass;
begin
  if bound is not null and not wanted then
    raise exception using
      errcode = 'object_in_use',
      message = format('row-level security stays on: it confines the roles of an API: %s (run: pillarbox revoke api ROLE)', bound);
  end if;
  for secured in
    select c.oid::regclass from "pillarbox".tables_of_tenants() as t join pg_class c on c.oid = ('"pillarbox".' || t.name)::regclass
    where (c.relrowsecurity and c.relforcerowsecurity) <> wanted
  loop
    if wanted then
      execute format('alter table %s enable row level security, force row level security', secured);
    else
      execute format('alter table %s disable row level security, no force row level security', secured);
    end if;
  end loop;
  perform "pillarbox".keep_policies();
  return was_on;
end
$$;

CREATE FUNCTION pillarbox.size(payload jsonb, body bytea) RETURNS bigint
    LANGUAGE sql STABLE
    AS $$
  select case
    when body is not null then octet_length(body)
    when pg_column_compression(payload) is null then pg_column_size(payload)
    else "pillarbox".decompressed_size(payload)
  end::bigint
$$;

CREATE FUNCTION pillarbox.tables_of_tenants() RETURNS TABLE(name name, own_rows text)
    LANGUAGE sql IMMUTABLE
    AS $$
  values
    ('outbox_events'::name, 'tenant_id = (select "pillarbox".tenant())'),
    ('leases', null),
    ('adopted', 'tenant_id = (select "pillarbox".tenant())'),
    ('import_failures', null),
    ('over_quota', null),
    ('quotas', null),
    ('role_bounds', null),
    ('audit', 'tenant_id = (select "pillarbox".tenant())')
$$;

CREATE FUNCTION pillarbox.tenant() RETURNS uuid
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN NULLIF((NULLIF(current_setting(('pillarbox'::text || '.tenant'::text), true), ''::text))::uuid, '00000000-0000-0000-0000-000000000000'::uuid);

CREATE FUNCTION pillarbox.trace() RETURNS jsonb
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $_$
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
$_$;

CREATE FUNCTION pillarbox.traced(headers jsonb, trace jsonb) RETURNS jsonb
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
  select case
    when trace = '{}' or jsonb_typeof(headers) <> 'object' or strpos(lower(headers::text), '"traceparent": ') > 0
      then headers
    else headers - 'tracestate' || trace
  end
$$;

CREATE FUNCTION pillarbox.unmark(consumer text, events uuid[]) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  gone bigint;
begin
  perform "pillarbox".authorise_consumer(unmark.consumer);
  delete from "pillarbox".inbox where consumer = unmark.consumer and event_id = any(events);
  get diagnostics gone = row_count;
  return gone;
end
$$;

CREATE FUNCTION pillarbox.vanished() RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
  raise exception using
    errcode = 'serialization_failure',
    message = 'an event with this dedupe key was deleted, or written after this transaction began (retry the transaction)';
end
$$;

CREATE PROCEDURE pillarbox.wait(INOUT last bigint, INOUT ended boolean, IN patience double precision, IN nap double precision DEFAULT 0.003)
    LANGUAGE plpgsql
    AS $$
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
    select case when is_called then last_value else 0 end into last from "pillarbox".outbox_seq;
    ended := last = seen and writers is not null and not exists (
      select from pg_stat_activity where datname = current_database() and backend_xid = any(writers)
    );
    exit when last <> seen or ended or clock_timestamp() >= ends;
    commit;
    perform from generate_series(1, naps)
    where pg_sleep(nap) is not null and coalesce(pg_sequence_last_value('"pillarbox".outbox_seq'), 0) <> seen
    limit 1;
  end loop;
end
$$;

CREATE TABLE pillarbox.adopted (
    adopted_table text NOT NULL COLLATE pg_catalog."C",
    row_id text NOT NULL COLLATE pg_catalog."C",
    event_id uuid NOT NULL,
    tenant_id uuid,
    fingerprint text NOT NULL,
    ended boolean DEFAULT false NOT NULL,
    write_back_pending boolean DEFAULT false NOT NULL,
    rejected boolean DEFAULT false NOT NULL,
    tried_at timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='5000');

CREATE TABLE pillarbox.audit (
    seq bigint NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    subject text NOT NULL,
    kind text NOT NULL COLLATE pg_catalog."C",
    role name DEFAULT SESSION_USER NOT NULL,
    tenant_id uuid,
    action text NOT NULL COLLATE pg_catalog."C",
    objects text[] NOT NULL,
    count bigint NOT NULL,
    before jsonb,
    after jsonb,
    reason text,
    CONSTRAINT audit_action_check CHECK ((octet_length(action) <= 64)),
    CONSTRAINT audit_kind_check CHECK ((kind = ANY (ARRAY['operator'::text, 'service'::text, 'worker'::text]))),
    CONSTRAINT audit_objects_check CHECK ((cardinality(objects) <= 1000)),
    CONSTRAINT audit_reason_check CHECK ((octet_length(reason) <= 2048)),
    CONSTRAINT audit_subject_check CHECK ((octet_length(subject) <= 2048))
);

ALTER TABLE pillarbox.audit ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME pillarbox.audit_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE pillarbox.destinations (
    name text NOT NULL COLLATE pg_catalog."C",
    paused_at timestamp with time zone DEFAULT now() NOT NULL,
    reason text NOT NULL,
    disabled boolean DEFAULT false NOT NULL
);

CREATE TABLE pillarbox.import_failures (
    adopted_table text NOT NULL COLLATE pg_catalog."C",
    event_id uuid NOT NULL,
    row_id text NOT NULL COLLATE pg_catalog."C",
    versions text[] NOT NULL,
    layout text NOT NULL,
    is_conflict boolean NOT NULL,
    error text NOT NULL,
    failed_at timestamp with time zone DEFAULT now() NOT NULL,
    attempts integer DEFAULT 1 NOT NULL,
    next_attempt_at timestamp with time zone DEFAULT (now() + '00:01:00'::interval) NOT NULL
);

CREATE TABLE pillarbox.importers (
    adopted_table text NOT NULL COLLATE pg_catalog."C",
    owner uuid NOT NULL,
    leased_until timestamp with time zone NOT NULL,
    relation regclass
);

CREATE TABLE pillarbox.inbox (
    consumer text NOT NULL COLLATE pg_catalog."C",
    event_id uuid NOT NULL,
    handled_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE pillarbox.lane_ranges (
    namespace text NOT NULL COLLATE pg_catalog."C",
    destination text NOT NULL COLLATE pg_catalog."C",
    number integer NOT NULL,
    ranges integer NOT NULL,
    wanted integer NOT NULL,
    owner uuid,
    leased_until timestamp with time zone,
    leaving boolean DEFAULT false NOT NULL,
    CONSTRAINT lane_ranges_check CHECK (((number >= 0) AND (number < ranges))),
    CONSTRAINT lane_ranges_ranges_check CHECK (((ranges >= 1) AND (ranges <= 4096))),
    CONSTRAINT lane_ranges_wanted_check CHECK (((wanted >= 1) AND (wanted <= 4096)))
)
WITH (fillfactor='50');

CREATE TABLE pillarbox.leases (
    claim_id uuid NOT NULL,
    first_row uuid NOT NULL,
    worker uuid NOT NULL,
    until timestamp with time zone NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    rows uuid[] NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', toast.autovacuum_vacuum_scale_factor='0', toast.autovacuum_vacuum_threshold='5000');
ALTER TABLE ONLY pillarbox.leases ALTER COLUMN rows SET STORAGE EXTERNAL;

CREATE TABLE pillarbox.migrations (
    version integer NOT NULL,
    name text NOT NULL,
    checksum text,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE SEQUENCE pillarbox.outbox_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE pillarbox.outbox_seq OWNED BY pillarbox.outbox_events.seq;

CREATE TABLE pillarbox.over_quota (
    kind text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    max_pending bigint NOT NULL,
    counted_at timestamp with time zone NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE pillarbox.pruners (
    scope text NOT NULL COLLATE pg_catalog."C",
    owner uuid NOT NULL,
    leased_until timestamp with time zone NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE pillarbox.quotas (
    kind text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    max_pending bigint NOT NULL,
    CONSTRAINT quotas_check CHECK (
CASE kind
    WHEN 'role'::text THEN (name <> ''::text)
    ELSE ((name = ''::text) OR (name = ((name)::uuid)::text))
END),
    CONSTRAINT quotas_kind_check CHECK ((kind = ANY (ARRAY['role'::text, 'tenant'::text]))),
    CONSTRAINT quotas_max_pending_check CHECK (((max_pending >= 1) AND (max_pending <= 1000000)))
);

CREATE TABLE pillarbox.role_bounds (
    role regrole NOT NULL,
    duty text NOT NULL,
    namespaces text[],
    tenants uuid[],
    destinations text[] DEFAULT '{}'::text[] NOT NULL,
    names text[],
    CONSTRAINT role_bounds_duty_check CHECK ((duty = ANY (ARRAY['producer'::text, 'writer'::text, 'consumer'::text, 'orchestrator'::text, 'dispatcher'::text, 'api'::text, 'api_any_tenant'::text])))
);

CREATE TABLE pillarbox.saga_log (
    saga bigint NOT NULL,
    seq bigint NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    what text NOT NULL,
    step text,
    action text,
    attempt integer,
    detail text
);

ALTER TABLE pillarbox.saga_log ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME pillarbox.saga_log_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE pillarbox.sagas (
    name text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    seq bigint NOT NULL,
    namespace text NOT NULL,
    topic text NOT NULL,
    status text NOT NULL COLLATE pg_catalog."C",
    path jsonb NOT NULL,
    attempt integer NOT NULL,
    tries integer NOT NULL,
    in_doubt boolean DEFAULT false NOT NULL,
    data jsonb NOT NULL,
    last_error text,
    timeout_at timestamp with time zone,
    attempt_secret text NOT NULL,
    own_token text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT sagas_status_check CHECK ((status = ANY (ARRAY['running'::text, 'compensating'::text, 'completed'::text, 'compensated'::text])))
);

ALTER TABLE pillarbox.sagas ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME pillarbox.sagas_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE pillarbox.samples (
    one boolean DEFAULT true NOT NULL,
    worker uuid NOT NULL,
    due_at timestamp with time zone NOT NULL,
    cap bigint NOT NULL,
    sample jsonb,
    taken_at timestamp with time zone,
    CONSTRAINT samples_one_check CHECK (one)
)
WITH (fillfactor='50');

CREATE TABLE pillarbox.totals (
    what text NOT NULL COLLATE pg_catalog."C",
    count bigint NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE pillarbox.workers (
    id uuid NOT NULL,
    host text NOT NULL,
    version text NOT NULL,
    scope text[],
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    seen_at timestamp with time zone DEFAULT now() NOT NULL,
    alive_until timestamp with time zone NOT NULL,
    claimed bigint DEFAULT 0 NOT NULL,
    delivered bigint DEFAULT 0 NOT NULL,
    failed bigint DEFAULT 0 NOT NULL,
    breakers jsonb DEFAULT '{}'::jsonb NOT NULL,
    serves jsonb DEFAULT '{}'::jsonb NOT NULL
)
WITH (fillfactor='50');

ALTER TABLE ONLY pillarbox.outbox_events ALTER COLUMN seq SET DEFAULT nextval('pillarbox.outbox_seq'::regclass);

ALTER TABLE ONLY pillarbox.adopted
    ADD CONSTRAINT adopted_pkey PRIMARY KEY (event_id);

ALTER TABLE ONLY pillarbox.audit
    ADD CONSTRAINT audit_pkey PRIMARY KEY (seq);

ALTER TABLE ONLY pillarbox.destinations
    ADD CONSTRAINT destinations_pkey PRIMARY KEY (name);

ALTER TABLE ONLY pillarbox.import_failures
    ADD CONSTRAINT import_failures_pkey PRIMARY KEY (adopted_table, event_id);

ALTER TABLE ONLY pillarbox.importers
    ADD CONSTRAINT importers_pkey PRIMARY KEY (adopted_table);

ALTER TABLE ONLY pillarbox.inbox
    ADD CONSTRAINT inbox_pkey PRIMARY KEY (consumer, event_id);

ALTER TABLE ONLY pillarbox.lane_ranges
    ADD CONSTRAINT lane_ranges_pkey PRIMARY KEY (namespace, destination, number);

ALTER TABLE ONLY pillarbox.leases
    ADD CONSTRAINT leases_pkey PRIMARY KEY (claim_id, first_row);

ALTER TABLE ONLY pillarbox.migrations
    ADD CONSTRAINT migrations_pkey PRIMARY KEY (version);

ALTER TABLE ONLY pillarbox.outbox_events
    ADD CONSTRAINT outbox_events_pkey PRIMARY KEY (id);

ALTER TABLE ONLY pillarbox.over_quota
    ADD CONSTRAINT over_quota_pkey PRIMARY KEY (kind, name);

ALTER TABLE ONLY pillarbox.pruners
    ADD CONSTRAINT pruners_pkey PRIMARY KEY (scope);

ALTER TABLE ONLY pillarbox.quotas
    ADD CONSTRAINT quotas_pkey PRIMARY KEY (kind, name);

ALTER TABLE ONLY pillarbox.role_bounds
    ADD CONSTRAINT role_bounds_pkey PRIMARY KEY (role, duty);

ALTER TABLE ONLY pillarbox.saga_log
    ADD CONSTRAINT saga_log_pkey PRIMARY KEY (saga, seq);

ALTER TABLE ONLY pillarbox.sagas
    ADD CONSTRAINT sagas_pkey PRIMARY KEY (id, name);

ALTER TABLE ONLY pillarbox.sagas
    ADD CONSTRAINT sagas_seq_key UNIQUE (seq);

ALTER TABLE ONLY pillarbox.samples
    ADD CONSTRAINT samples_pkey PRIMARY KEY (one);

ALTER TABLE ONLY pillarbox.totals
    ADD CONSTRAINT totals_pkey PRIMARY KEY (what);

ALTER TABLE ONLY pillarbox.workers
    ADD CONSTRAINT workers_pkey PRIMARY KEY (id);

CREATE INDEX adopted_open ON pillarbox.adopted USING btree (adopted_table) WHERE ((NOT ended) AND (NOT rejected));

CREATE INDEX adopted_pending ON pillarbox.adopted USING btree (adopted_table, rejected, tried_at) WHERE write_back_pending;

CREATE INDEX audit_by_tenant ON pillarbox.audit USING btree (tenant_id, seq) WHERE (tenant_id IS NOT NULL);

CREATE INDEX import_failures_due ON pillarbox.import_failures USING btree (adopted_table, next_attempt_at);

CREATE INDEX inbox_old ON pillarbox.inbox USING btree (consumer, handled_at);

CREATE INDEX leases_until ON pillarbox.leases USING btree (until);

CREATE INDEX outbox_events_dead_at ON pillarbox.outbox_events USING btree (COALESCE(destination, ''::text), namespace, seq) WHERE (open = 2);

CREATE UNIQUE INDEX outbox_events_dedupe ON pillarbox.outbox_events USING btree (namespace, topic, dedupe_key) WHERE (dedupe_key IS NOT NULL);

CREATE INDEX outbox_events_delivered ON pillarbox.outbox_events USING btree (namespace, delivered_at) WHERE (open IS NULL);

CREATE INDEX outbox_events_ended ON pillarbox.outbox_events USING btree (open, seq) WHERE (open >= 2);

CREATE INDEX outbox_events_fresh ON pillarbox.outbox_events USING btree (COALESCE(destination, ''::text), namespace, seq) WHERE ((open = 0) AND (lane IS NULL));

CREATE INDEX outbox_events_fresh_keyed ON pillarbox.outbox_events USING btree (COALESCE(destination, ''::text), namespace, ((lane >> 7)), seq) WHERE ((open = 0) AND (lane IS NOT NULL));

CREATE INDEX outbox_events_keyed ON pillarbox.outbox_events USING btree (COALESCE(destination, ''::text), namespace, lane, ordering_key, seq) WHERE ((open < 3) AND (lane IS NOT NULL));

CREATE INDEX outbox_events_own_leases ON pillarbox.outbox_events USING btree (own_until) WHERE (own_until IS NOT NULL);

CREATE INDEX outbox_events_siblings ON pillarbox.outbox_events USING btree (parent_id) WHERE (parent_id IS NOT NULL);

CREATE INDEX outbox_events_spent ON pillarbox.outbox_events USING btree (spent) WHERE (spent IS NOT NULL);

CREATE INDEX outbox_events_tried ON pillarbox.outbox_events USING btree (COALESCE(destination, ''::text), namespace, lane, ordering_key, seq) WHERE ((open = ANY (ARRAY[1, 2])) AND (lane IS NOT NULL));

CREATE INDEX outbox_events_unrouted ON pillarbox.outbox_events USING btree (seq) WHERE ((open < 2) AND (destination = 'unrouted'::text));

CREATE INDEX outbox_events_waiting ON pillarbox.outbox_events USING btree (COALESCE(destination, ''::text), namespace, next_attempt_at, seq) WHERE ((open = 1) AND (lane IS NULL));

CREATE INDEX sagas_ended ON pillarbox.sagas USING btree (updated_at) WHERE (status = ANY (ARRAY['completed'::text, 'compensated'::text]));

CREATE INDEX sagas_open ON pillarbox.sagas USING btree (status, seq) WHERE (status = ANY (ARRAY['running'::text, 'compensating'::text]));

CREATE TRIGGER audit_is_kept BEFORE DELETE OR UPDATE OR TRUNCATE ON pillarbox.audit FOR EACH STATEMENT EXECUTE FUNCTION pillarbox.keep_audit();

ALTER TABLE ONLY pillarbox.saga_log
    ADD CONSTRAINT saga_log_saga_fkey FOREIGN KEY (saga) REFERENCES pillarbox.sagas(seq) ON DELETE CASCADE;
