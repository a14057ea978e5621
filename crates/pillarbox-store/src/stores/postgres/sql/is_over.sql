-- Has the row ended, long enough ago? A part of over.sql.
case
  when e.open is null then e.delivered_at < now() - greatest(
    case when e.namespace = any($1) then (select r.delivered from rule r where r.name = e.namespace) else $4::interval end,
    case when e.adopted_table is not null then interval '10 minutes' end)
  when e.open = 2 and e.lane is null then e.updated_at < now() - greatest(
    case when e.namespace = any($1) then (select r.dead from rule r where r.name = e.namespace) else $5::interval end,
    case when e.adopted_table is not null then interval '10 minutes' end)
end
