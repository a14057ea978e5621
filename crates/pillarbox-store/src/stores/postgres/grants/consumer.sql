grant usage on schema pillarbox to consumer;
grant select, insert, update, delete on pillarbox.inbox to consumer;
