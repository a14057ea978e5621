-- The business table of the examples, and the permissions of their role on it.
-- psql "$OWNER_URL" --variable role=shop --file examples/orders.sql
create table public.orders (
  id    bigint primary key,
  total numeric(10, 2) not null
);
grant select, insert on public.orders to :"role";
