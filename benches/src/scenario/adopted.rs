//! A backlog in an adopted table, compared with the same backlog in the native table.

use std::time::Duration;

use pillarbox_store::stores::postgres::adopt::{DeliveryOrder, ErrorText, SpeaksFor, Table, built_in};

use super::{Context, progress, rate};
use crate::database::Database;
use crate::failure::Failure;
use crate::ours::Ours;
use crate::report::{Measurement, Pairs};

const LAYOUT: &str = "order-service";
/// The layout's own value, 10, suits a poller that sends one row after another.
const BATCH: usize = 1000;

/// The table with the indexes of the order service.
const TABLE: &str = "drop table if exists outbox;
    create table outbox (
      id uuid primary key, aggregate_type varchar(255) not null, aggregate_id uuid not null,
      event_type varchar(255) not null, payload text not null, status varchar(50) not null,
      created_at timestamp not null, sent_at timestamp, error_message text);
    create index idx_outbox_status_created on outbox (status, created_at);
    create index idx_outbox_aggregate on outbox (aggregate_id)";

pub(super) async fn measure(context: &Context<'_>) -> Result<Vec<Measurement>, Failure> {
    let rows = context.scale.drained();
    let tables = [table()?];
    let ours = Ours::new(context.database).await?;
    let mut pairs = Pairs::default();
    for _ in 0..context.scale.pairs() {
        ours.backlog().refill(rows, "drain").await?;
        pairs.peer.push(rate(rows, ours.drain_to_null(rows).await?));
        progress("native", pairs.peer[pairs.peer.len() - 1]);

        ours.backlog().clear().await?;
        fill(context.database, rows).await?;
        let took = ours.adopting(&tables).drain_to_null(rows).await?;
        pairs.ours.push(rate(rows, took));
        verify(context.database, rows).await?;
        progress("adopted", pairs.ours[pairs.ours.len() - 1]);
    }
    let against = "the same backlog in the native table";
    let found = Measurement::speeds("drain-adopted", against, &pairs, 0.50);
    Ok(vec![found.detail("rows", rows).detail("layout", LAYOUT)])
}

fn table() -> Result<Table, Failure> {
    let mut layout =
        built_in(LAYOUT).ok_or_else(|| Failure::new(format!("no built-in layout is called {LAYOUT}")))?;
    // The events of the native backlog have no keys either.
    layout.delivery_order = Some(DeliveryOrder::None);
    Ok(Table {
        name: LAYOUT.to_owned(),
        layout,
        poll: Duration::from_secs(5),
        batch: BATCH,
        prune: None,
        speaks_for: SpeaksFor::default(),
        prune_dead: None,
        prune_interval: Duration::from_secs(60),
        error_text: ErrorText::default(),
    })
}

/// Writes rows as the service does, with the payloads of the other backlogs.
async fn fill(database: &Database, rows: u32) -> Result<(), Failure> {
    database.run(TABLE).await?;
    database
        .run("truncate pillarbox.adopted; truncate pillarbox.importers")
        .await?;
    let insert = format!(
        "insert into outbox (id, aggregate_type, aggregate_id, event_type, payload, status, created_at)
         select gen_random_uuid(), 'Order', gen_random_uuid(), 'OrderCreated',
           jsonb_build_object('order', n, 'customer', 'c-' || n, 'currency', 'EUR', 'note', repeat('x', 235))::text,
           'NEW', now() at time zone 'UTC' - make_interval(secs => ({rows} - n) / 1000.0)
         from generate_series(1, {rows}) n"
    );
    database.run(&insert).await?;
    database.vacuum_and_checkpoint("outbox").await
}

/// Checks the adopted table itself.
async fn verify(database: &Database, rows: u32) -> Result<(), Failure> {
    let sent = "select count(*) from outbox where status = 'SENT' and sent_at is not null";
    let sent = database.count(sent).await?;
    if sent == i64::from(rows) {
        return Ok(());
    }
    Err(Failure::new(format!("{sent} of {rows} rows are SENT")))
}
