-- The tables of the services. In production each service has its own database, with its own outbox and inbox. Here they share
-- one database and one outbox, so that one command starts everything and one query checks it.
begin;

create schema if not exists shop;
create table if not exists shop.orders (
  id       bigint generated always as identity primary key,
  customer text not null,
  item     text not null,
  quantity int not null check (quantity > 0),
  cents    bigint not null,
  status   text not null default 'placed' check (status in ('placed', 'confirmed', 'cancelled')),
  placed_at timestamptz not null default now()
);
create table if not exists shop.faults (
  service text primary key,
  mode    text not null
);

-- Each step's table has one row per order, however many attempts there are. `barred` means that nothing was done and nothing
-- will be: a command that arrives after its compensation is refused.
create schema if not exists payment;
create table if not exists payment.charges (
  order_id bigint primary key,
  charge   uuid not null default gen_random_uuid(),
  cents    bigint not null,
  status   text not null check (status in ('charged', 'refunded', 'barred'))
);

create schema if not exists stock;
create table if not exists stock.items (
  item      text primary key,
  delivered int not null,
  on_hand   int not null check (on_hand >= 0)
);
insert into stock.items (item, delivered, on_hand) values ('teapot', 10000, 10000), ('unicorn', 0, 0)
on conflict do nothing;
create table if not exists stock.reservations (
  order_id bigint primary key,
  item     text not null,
  quantity int not null,
  status   text not null check (status in ('reserved', 'released', 'barred'))
);

create schema if not exists shipping;
create table if not exists shipping.parcels (
  order_id bigint primary key,
  address  text not null,
  status   text not null check (status in ('booked', 'cancelled', 'barred'))
);

-- No unique key, so that an event that is handled twice shows here.
create schema if not exists notifications;
create table if not exists notifications.sent (
  position bigint generated always as identity primary key,
  order_id bigint not null,
  what     text not null,
  text     text not null,
  at       timestamptz not null default clock_timestamp()
);

commit;
