//! Checks the tables of all services against each other: an ended order is done by every service or by none, and each step
//! was done once.
//!
//! Each check is one statement that counts violations. Orders whose saga still runs may be partly done and are not checked.

use sqlx::PgPool;

/// A violation, and the statement that counts it.
const CHECKS: [(&str, &str); 6] = [
    (
        "confirmed orders are not paid, reserved and booked",
        "select count(*) from shop.orders o
           left join payment.charges c on c.order_id = o.id and c.status = 'charged' and c.cents = o.cents
           left join stock.reservations r on r.order_id = o.id and r.status = 'reserved'
             and (r.item, r.quantity) = (o.item, o.quantity)
           left join shipping.parcels p on p.order_id = o.id and p.status = 'booked'
         where o.status = 'confirmed' and num_nulls(c.order_id, r.order_id, p.order_id) > 0",
    ),
    (
        "cancelled orders are still paid, reserved or booked",
        "select count(*) from shop.orders o
           left join payment.charges c on c.order_id = o.id and c.status = 'charged'
           left join stock.reservations r on r.order_id = o.id and r.status = 'reserved'
           left join shipping.parcels p on p.order_id = o.id and p.status = 'booked'
         where o.status = 'cancelled' and num_nonnulls(c.order_id, r.order_id, p.order_id) > 0",
    ),
    (
        "orders do not match their sagas",
        "select count(*) from shop.orders o left join pillarbox.sagas s on s.name = 'order' and s.id = o.id::text
         where o.status is distinct from
           case s.status when 'completed' then 'confirmed' when 'compensated' then 'cancelled'
             when 'running' then 'placed' when 'compensating' then 'placed' end",
    ),
    (
        "something was paid, reserved or booked without an order",
        "select count(*) from (select order_id from payment.charges union all
           select order_id from stock.reservations union all select order_id from shipping.parcels) done
         where not exists (select from shop.orders o where o.id = done.order_id)",
    ),
    (
        "items are neither on hand nor reserved",
        "select count(*) from stock.items i where i.delivered <> i.on_hand +
           (select coalesce(sum(r.quantity), 0) from stock.reservations r where r.item = i.item and r.status = 'reserved')",
    ),
    (
        "customers were notified twice",
        "select count(*) from (select 1 from notifications.sent
           group by order_id, case what when 'placed' then 'placed' else 'ended' end having count(*) > 1) repeated",
    ),
];

/// One sentence per violation, all from one snapshot of the database.
pub(crate) async fn violations(pool: &PgPool) -> Result<Vec<String>, sqlx::Error> {
    let mut transaction = pool
        .begin_with("begin isolation level repeatable read, read only")
        .await?;
    let mut violations = Vec::new();
    for (what, count) in CHECKS {
        let count: i64 = sqlx::query_scalar(count).fetch_one(&mut *transaction).await?;
        if count > 0 {
            violations.push(format!("{what}: {count}"));
        }
    }
    transaction.commit().await?;
    Ok(violations)
}
