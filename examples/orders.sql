-- The business table of the examples, and what their role may do there beside enqueuing.
-- psql "$OWNER_URL" --variable role=shop --file examples/orders.sql
create table public.orders (
  id    bigint primary key,
  total numeric(10, 2) not null
);
grant select, insert on public.orders to :"role";
