//! What compression of large payloads saves and costs: events of 2 MiB of JSON, with and without it.

use std::time::Instant;

use pillarbox::{Event, Outbox};
use serde_json::{Value, json};

use super::Context;
use crate::failure::Failure;
use crate::ours::{Ours, TABLE};
use crate::report::{Measurement, Target, median};

/// One payload, in bytes.
const SIZE: usize = 2 << 20;

pub(super) async fn measure(context: &Context<'_>) -> Result<Vec<Measurement>, Failure> {
    let ours = Ours::new(context.database).await?;
    let mut connection = context.database.connection().await?;
    let rows = context.scale.compressed();
    let payloads: Vec<Value> = (0..rows).map(|n| orders(u64::from(n))).collect();
    let (mut mine, mut theirs) = (Vec::new(), Vec::new());
    let (mut size, mut plain_size) = (0.0, 0.0);
    for _ in 0..context.scale.pairs() {
        for (threshold, costs, stored) in [
            (None, &mut theirs, &mut plain_size),
            (Some(SIZE / 2), &mut mine, &mut size),
        ] {
            ours.backlog().clear().await?;
            let outbox = Outbox::default().compress_over(threshold);
            let began = Instant::now();
            for payload in &payloads {
                let event = Event::new("shop", "orders").json(payload)?;
                outbox.enqueue(&mut connection, &event).await?;
            }
            costs.push(began.elapsed().as_secs_f64() * 1e3 / f64::from(rows));
            let size = format!("select pg_total_relation_size('{TABLE}') / 1024");
            let kibibytes = context.database.count(&size).await?;
            *stored = f64::from(u32::try_from(kibibytes).unwrap_or(u32::MAX)) / f64::from(rows);
        }
    }
    ours.backlog().clear().await?;
    let against = "the same as jsonb, which PostgreSQL compresses";
    Ok(vec![
        Measurement::new(
            "compression-size",
            (size, "KiB/event"),
            (against, plain_size),
            Target::AtMost(1.0),
        ),
        Measurement::new(
            "compression-time",
            (median(&mine), "ms/event"),
            (against, median(&theirs)),
            Target::AtMost(1.0),
        )
        .detail("payload_bytes", SIZE),
    ])
}

/// Orders of a shop: the same keys with different values.
fn orders(seed: u64) -> Value {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut orders = Vec::new();
    let mut size = 0;
    while size < SIZE {
        let order = json!({
            "orderId": uuid::Uuid::from_u128(random.u128(..)),
            "customer": { "id": random.u32(..), "name": random.choice(["Ada", "Grace", "Edsger", "Barbara"]) },
            "lines": (0..random.usize(1..6)).map(|line| json!({
                "line": line, "sku": format!("SKU-{:06}", random.u32(..1_000_000)),
                "quantity": random.u8(1..9), "price": format!("{}.{:02}", random.u16(..500), random.u8(..100)),
            })).collect::<Vec<_>>(),
            "currency": "EUR",
        });
        size += order.to_string().len() + 1;
        orders.push(order);
    }
    Value::Array(orders)
}
