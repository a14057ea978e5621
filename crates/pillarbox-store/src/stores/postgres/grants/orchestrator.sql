grant usage on schema pillarbox to orchestrator;
grant select, insert, update on pillarbox.sagas to orchestrator;
grant select, insert on pillarbox.saga_log to orchestrator;
