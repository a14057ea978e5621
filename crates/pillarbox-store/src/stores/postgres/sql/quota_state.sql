-- Which quotas are there, and does this worker count them? By the simple protocol, every few seconds. /*worker*/ is its id.
-- The live worker that started first counts. Without an index for a kind of quotas, a count would read the whole table.
select
  coalesce(
    /*worker*/ = (select id from pillarbox.workers where alive_until >= now() order by started_at, id limit 1), false
  ) as is_mine,
  exists (select from pillarbox.quotas where kind = 'role') as roles,
  exists (select from pillarbox.quotas where kind = 'tenant') as tenants,
  (select max_pending from pillarbox.quotas where kind = 'tenant' and name = '') as each,
  exists (
    select from pg_index where indexrelid = to_regclass('pillarbox.outbox_events_by_role') and indisvalid
  ) as has_role_index,
  exists (
    select from pg_index where indexrelid = to_regclass('pillarbox.outbox_events_by_tenant') and indisvalid
  ) as has_tenant_index,
  exists (
    select from pg_trigger where tgrelid = 'pillarbox.outbox_events'::regclass and tgname = 'note_role'
  ) as notes_role,
  exists (
    select from pg_trigger where tgrelid = 'pillarbox.outbox_events'::regclass and tgname = 'check_quotas'
  ) as checks
