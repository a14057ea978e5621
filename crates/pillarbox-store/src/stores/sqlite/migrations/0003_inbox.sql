-- What consumers have handled, so that a second delivery does nothing.
create table pillarbox_inbox (
  consumer   text not null,
  event_id   text not null,
  handled_at text not null default (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
  primary key (consumer, event_id)
) strict, without rowid;

-- What a consumer may forget.
create index pillarbox_inbox_old on pillarbox_inbox (consumer, handled_at);
