-- What consumers have handled, so that a second delivery does nothing: docs/inbox.md.
create table pillarbox.inbox (
  consumer   text collate "C" not null,
  -- The event's id, or the id that is made of its namespace, topic and dedupe key.
  event_id   uuid not null,
  handled_at timestamptz not null default now(),
  primary key (consumer, event_id)
);

-- What a consumer may forget.
create index inbox_old on pillarbox.inbox (consumer, handled_at);
