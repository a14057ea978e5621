grant usage on schema pillarbox to consumer;
grant select, insert on pillarbox.inbox to consumer;
grant execute on function pillarbox.own_names, pillarbox.unmark, pillarbox.prune_inbox to consumer;
alter table pillarbox.inbox enable row level security;
drop policy if exists own_marks on pillarbox.inbox;
create policy own_marks on pillarbox.inbox using (
  (select pillarbox.own_names('consumer'::text, current_user)) is null
  or consumer = any ((select pillarbox.own_names('consumer'::text, current_user))::text[])
);
