CREATE SCHEMA pillarbox;

CREATE FUNCTION pillarbox.lane(key text) RETURNS smallint
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
  select ('x' || substr(md5(key), 1, 3))::bit(12)::int::smallint
$$;

CREATE FUNCTION pillarbox.size(payload jsonb, body bytea) RETURNS bigint
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
  select case
    when body is not null then octet_length(body)
    when pg_column_compression(payload) is null then pg_column_size(payload)
    else octet_length(payload::text)
  end::bigint
$$;

CREATE FUNCTION pillarbox.uuidv7() RETURNS uuid
    LANGUAGE sql PARALLEL SAFE
    AS $$
  select encode(
    set_bit(set_bit(
      overlay(uuid_send(gen_random_uuid())
        placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3) from 1 for 6),
      52, 1), 53, 1),
    'hex')::uuid
$$;

CREATE TABLE pillarbox.destinations (
    name text NOT NULL COLLATE pg_catalog."C",
    paused_at timestamp with time zone DEFAULT now() NOT NULL,
    reason text NOT NULL
);

CREATE TABLE pillarbox.lanes (
    namespace text NOT NULL COLLATE pg_catalog."C",
    number integer NOT NULL,
    ranges integer NOT NULL,
    wanted integer NOT NULL,
    owner uuid,
    until timestamp with time zone,
    leaving boolean DEFAULT false NOT NULL,
    CONSTRAINT lanes_check CHECK (((number >= 0) AND (number < ranges))),
    CONSTRAINT lanes_ranges_check CHECK (((ranges >= 1) AND (ranges <= 4096))),
    CONSTRAINT lanes_wanted_check CHECK (((wanted >= 1) AND (wanted <= 4096)))
)
WITH (fillfactor='50');

CREATE TABLE pillarbox.migrations (
    version integer NOT NULL,
    name text NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);

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
    CONSTRAINT outbox_events_headers_check CHECK ((jsonb_typeof(headers) = 'object'::text)),
    CONSTRAINT outbox_events_namespace_check CHECK ((namespace <> ''::text)),
    CONSTRAINT outbox_events_topic_check CHECK ((topic <> ''::text))
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='5000', autovacuum_vacuum_insert_scale_factor='0.1');

CREATE SEQUENCE pillarbox.outbox_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE pillarbox.outbox_seq OWNED BY pillarbox.outbox_events.seq;

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
    failed bigint DEFAULT 0 NOT NULL
)
WITH (fillfactor='50');

ALTER TABLE ONLY pillarbox.outbox_events ALTER COLUMN seq SET DEFAULT nextval('pillarbox.outbox_seq'::regclass);

ALTER TABLE ONLY pillarbox.destinations
    ADD CONSTRAINT destinations_pkey PRIMARY KEY (name);

ALTER TABLE ONLY pillarbox.lanes
    ADD CONSTRAINT lanes_pkey PRIMARY KEY (namespace, number);

ALTER TABLE ONLY pillarbox.migrations
    ADD CONSTRAINT migrations_pkey PRIMARY KEY (version);

ALTER TABLE ONLY pillarbox.outbox_events
    ADD CONSTRAINT outbox_events_pkey PRIMARY KEY (id);

ALTER TABLE ONLY pillarbox.workers
    ADD CONSTRAINT workers_pkey PRIMARY KEY (id);

CREATE INDEX outbox_events_blocking ON pillarbox.outbox_events USING btree (seq) WHERE ((lane IS NOT NULL) AND ((status = 'dead'::text) OR ((status = 'pending'::text) AND (attempts > 0))));

CREATE INDEX outbox_events_dead ON pillarbox.outbox_events USING btree (seq) WHERE (status = 'dead'::text);

CREATE INDEX outbox_events_dead_at ON pillarbox.outbox_events USING btree (COALESCE(destination, ''::text), namespace, seq) WHERE (status = 'dead'::text);

CREATE UNIQUE INDEX outbox_events_dedupe ON pillarbox.outbox_events USING btree (namespace, topic, dedupe_key) WHERE (dedupe_key IS NOT NULL);

CREATE INDEX outbox_events_exhausted ON pillarbox.outbox_events USING btree (seq) WHERE ((status = 'pending'::text) AND (attempts >= max_attempts));

CREATE INDEX outbox_events_fresh ON pillarbox.outbox_events USING btree (COALESCE(destination, ''::text), namespace, seq) WHERE ((status = 'pending'::text) AND (next_attempt_at <= created_at) AND (lane IS NULL));

CREATE INDEX outbox_events_keyed ON pillarbox.outbox_events USING btree (COALESCE(destination, ''::text), namespace, lane, ordering_key, seq) WHERE ((lane IS NOT NULL) AND (status = ANY (ARRAY['pending'::text, 'processing'::text, 'dead'::text])));

CREATE INDEX outbox_events_leased ON pillarbox.outbox_events USING btree (COALESCE(locked_until, '-infinity'::timestamp with time zone)) WHERE (status = 'processing'::text);

CREATE INDEX outbox_events_siblings ON pillarbox.outbox_events USING btree (parent_id) WHERE (parent_id IS NOT NULL);

CREATE INDEX outbox_events_tried ON pillarbox.outbox_events USING btree (attempts) WHERE ((status = 'pending'::text) AND (attempts > 0) AND (max_attempts IS NULL));

CREATE INDEX outbox_events_unknown ON pillarbox.outbox_events USING btree (seq) WHERE (status <> ALL (ARRAY['pending'::text, 'processing'::text, 'delivered'::text, 'dead'::text]));

CREATE INDEX outbox_events_unrouted ON pillarbox.outbox_events USING btree (seq) WHERE ((status = 'pending'::text) AND (destination = 'unrouted'::text));

CREATE INDEX outbox_events_waiting ON pillarbox.outbox_events USING btree (COALESCE(destination, ''::text), namespace, next_attempt_at, seq) WHERE ((status = 'pending'::text) AND (next_attempt_at > created_at) AND (lane IS NULL));
