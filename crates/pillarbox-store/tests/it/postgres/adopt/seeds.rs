//! The tables of six systems, exactly as in their documents, and rows as their producers insert them.

/// A system whose table is adopted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seed {
    /// The layout's name.
    pub(super) name: &'static str,
    /// Creates the table. `{schema}` stands for the schema of the test.
    pub(super) table: &'static str,
    /// Inserts one row with this id.
    pub(super) insert: &'static str,
    /// The names of the table and of its id.
    pub(super) place: &'static str,
    pub(super) id: &'static str,
}

pub(super) const ARAP: Seed = Seed {
    name: "arap",
    place: "{schema}.outbox_messages",
    id: "\"Id\"",
    table: r#"create table {schema}.outbox_messages (
        "Id" uuid primary key, "Type" varchar(255) not null, "Content" jsonb not null,
        "OccurredOnUtc" timestamp not null, "ProcessedOnUtc" timestamp, "RetryCount" int not null default 0,
        "Error" text);
      create index "IX_outbox_messages_ProcessedOnUtc" on {schema}.outbox_messages ("ProcessedOnUtc")"#,
    insert: r#"insert into {schema}.outbox_messages ("Id", "Type", "Content", "OccurredOnUtc", "ProcessedOnUtc", "RetryCount")
      values ('{id}', 'ProposalCreated', '{"ProposalId": "1"}', now() at time zone 'UTC', null, 0)"#,
};

pub(super) const MODKIT: Seed = Seed {
    name: "modkit",
    place: "{schema}.modkit_outbox_events",
    id: "id",
    table: "create table {schema}.modkit_outbox_events (
        id uuid primary key, namespace text not null, topic text not null, tenant_id uuid, dedupe_key text,
        payload jsonb not null, status text not null, attempts int not null default 0,
        next_attempt_at timestamptz not null default now(), locked_by uuid, locked_until timestamptz,
        last_error text, created_at timestamptz not null default now(),
        updated_at timestamptz not null default now());
      create index on {schema}.modkit_outbox_events (status, next_attempt_at);
      create index on {schema}.modkit_outbox_events (locked_until);
      create unique index on {schema}.modkit_outbox_events (namespace, topic, dedupe_key)
        where dedupe_key is not null",
    insert: "insert into {schema}.modkit_outbox_events (id, namespace, topic, dedupe_key, payload, status)
      values ('{id}', 'mini-chat', 'usage', '{id}', '{\"tokens\": 7}', 'pending')",
};

pub(super) const REDIVER: Seed = Seed {
    name: "rediver",
    place: "{schema}.notification_outbox",
    id: "id",
    table: "create table {schema}.tenants (id uuid primary key);
      create table {schema}.notification_outbox (
        id uuid primary key default gen_random_uuid(),
        tenant_id uuid not null references {schema}.tenants (id) on delete cascade,
        event_type varchar(100) not null, aggregate_type varchar(100) not null, aggregate_id uuid,
        title varchar(500) not null, body text, severity varchar(20) not null default 'info', url varchar(2000),
        metadata jsonb default '{}', status varchar(20) not null default 'pending',
        retry_count int not null default 0, max_retries int not null default 3, last_error text,
        scheduled_at timestamptz not null default now(), locked_at timestamptz, locked_by varchar(100),
        created_at timestamptz not null default now(), updated_at timestamptz not null default now(),
        processed_at timestamptz,
        constraint notification_outbox_status_check
          check (status in ('pending', 'processing', 'completed', 'failed', 'dead')));
      create index on {schema}.notification_outbox (scheduled_at) where status = 'pending';
      create index on {schema}.notification_outbox (tenant_id);
      create index on {schema}.notification_outbox (status)",
    insert: "with t as (insert into {schema}.tenants values ('{id}') returning id)
      insert into {schema}.notification_outbox (id, tenant_id, event_type, aggregate_type, title, severity, url)
      select '{id}', id, 'new_finding', 'finding', 'SQL injection', 'critical', '/findings/1' from t",
};

pub(super) const FAMILY_HUB: Seed = Seed {
    name: "family-hub",
    place: "{schema}.outbox_events",
    id: "event_id",
    table: "create table {schema}.outbox_events (
        event_id uuid primary key, event_type varchar(255) not null, event_version int not null,
        aggregate_type varchar(255) not null, aggregate_id uuid not null, payload jsonb not null,
        processed_at timestamp, status int not null, retry_count int not null default 0, error_message text,
        created_at timestamp not null, updated_at timestamp not null);
      create index ix_outbox_events_status_created_at on {schema}.outbox_events (status, created_at);
      create index ix_outbox_events_created_at on {schema}.outbox_events (created_at)",
    insert: "insert into {schema}.outbox_events (event_id, event_type, event_version, aggregate_type, aggregate_id, payload,
        status, created_at, updated_at)
      values ('{id}', 'FamilyHub.FamilyMemberInvitedEvent', 1, 'FamilyMemberInvitation', '{id}', '{\"isResend\": false}',
        0, now() at time zone 'UTC', now() at time zone 'UTC')",
};

pub(super) const ORDER_SERVICE: Seed = Seed {
    name: "order-service",
    place: "{schema}.outbox",
    id: "id",
    table: "create table {schema}.outbox (
        id uuid primary key, aggregate_type varchar(255) not null, aggregate_id uuid not null,
        event_type varchar(255) not null, payload text not null, status varchar(50) not null,
        created_at timestamp not null, sent_at timestamp, error_message text);
      create index idx_outbox_status_created on {schema}.outbox (status, created_at);
      create index idx_outbox_aggregate on {schema}.outbox (aggregate_id)",
    insert: "insert into {schema}.outbox (id, aggregate_type, aggregate_id, event_type, payload, status, created_at)
      values ('{id}', 'Order', '{id}', 'OrderCreated', '{\"b\": 1,  \"a\": 2}', 'NEW', now() at time zone 'UTC')",
};

pub(super) const DEBEZIUM: Seed = Seed {
    name: "debezium",
    place: "{schema}.outbox",
    id: "id",
    table: "create table {schema}.outbox (
        id uuid primary key, aggregatetype varchar(255) not null, aggregateid varchar(255) not null,
        type varchar(255) not null, payload jsonb)",
    insert: "insert into {schema}.outbox (id, aggregatetype, aggregateid, type, payload)
      values ('{id}', 'order', '{id}', 'OrderCreated', '{\"order\": 1}')",
};

pub(super) const ALL: [Seed; 6] = [ARAP, MODKIT, REDIVER, FAMILY_HUB, ORDER_SERVICE, DEBEZIUM];
