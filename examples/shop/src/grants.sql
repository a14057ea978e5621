-- What each role may do with the tables of the services. Their duties in the outbox come from `roles.rs`.
-- The names of the roles get the prefix of the shop.
begin;

grant usage on schema shop to storefront;
grant select, insert on shop.orders to storefront;

grant usage on schema shop to orders;
grant select, update (status) on shop.orders to orders;

grant usage on schema payment, shop to payment;
grant select, insert, update on payment.charges to payment;
grant select, delete on shop.faults to payment;

grant usage on schema stock, shop to stock;
grant select, update (on_hand) on stock.items to stock;
grant select, insert, update on stock.reservations to stock;
grant select, delete on shop.faults to stock;

grant usage on schema shipping, shop to shipping;
grant select, insert, update on shipping.parcels to shipping;
grant select, delete on shop.faults to shipping;

grant usage on schema notifications to notifications;
grant insert on notifications.sent to notifications;

grant usage on schema shop to dispatcher;
grant select on shop.faults to dispatcher;

commit;
