grant usage on schema pillarbox to orchestrator;
grant select on pillarbox.sagas, pillarbox.saga_log to orchestrator;
grant insert (
  name, id, namespace, topic, status, path, attempt, tries, in_doubt, data, last_error, timeout_at, attempt_secret,
  own_token
) on pillarbox.sagas to orchestrator;
grant update (status, path, attempt, tries, in_doubt, data, last_error, timeout_at, updated_at) on pillarbox.sagas to orchestrator;
grant insert (saga, what, step, action, attempt, detail) on pillarbox.saga_log to orchestrator;
grant execute on function pillarbox.own_names, pillarbox.is_own_saga, pillarbox.may_address to orchestrator;
alter table pillarbox.sagas enable row level security;
drop policy if exists own_sagas on pillarbox.sagas;
create policy own_sagas on pillarbox.sagas using (
  (select pillarbox.own_names('orchestrator'::text, current_user)) is null
  or name = any ((select pillarbox.own_names('orchestrator'::text, current_user))::text[])
);
drop policy if exists own_address on pillarbox.sagas;
create policy own_address on pillarbox.sagas as restrictive for insert
with check (pillarbox.may_address(namespace, current_user));
alter table pillarbox.saga_log enable row level security;
drop policy if exists own_log on pillarbox.saga_log;
create policy own_log on pillarbox.saga_log using (pillarbox.is_own_saga(saga, current_user));
