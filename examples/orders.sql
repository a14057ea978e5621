-- The business table of the examples, and the permissions of their role on it.
-- psql "$OWNER_URL" --variable role=shop --file examples/orders.sql
create table public.orders (
  id    bigint primary key,
  total numeric(10, 2) not null
);
grant select, insert on public.orders to :"role";

-- Only so that an example can count its own events. A producer needs none of it.
grant select (namespace, topic, dedupe_key) on pillarbox.outbox_events to :"role";
