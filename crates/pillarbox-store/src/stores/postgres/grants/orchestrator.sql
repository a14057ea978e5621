grant usage on schema pillarbox to orchestrator;
grant select, insert, update on pillarbox.sagas to orchestrator;
grant select, insert on pillarbox.saga_log to orchestrator;
grant execute on function pillarbox.own_names, pillarbox.is_own_saga to orchestrator;
alter table pillarbox.sagas enable row level security;
drop policy if exists own_sagas on pillarbox.sagas;
create policy own_sagas on pillarbox.sagas using (
  (select pillarbox.own_names('orchestrator'::text, current_user)) is null
  or name = any ((select pillarbox.own_names('orchestrator'::text, current_user))::text[])
);
alter table pillarbox.saga_log enable row level security;
drop policy if exists own_log on pillarbox.saga_log;
create policy own_log on pillarbox.saga_log using (pillarbox.is_own_saga(saga, current_user));
