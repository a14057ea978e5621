//! What an inbox costs a consumer, compared with the same handler without one: one transaction after another on one connection, with
//! 1 and with 500 events each.
//!
//! The handler writes one row per event. The leanest possible handler writes all rows of a transaction with one statement.

use std::time::Instant;

use pillarbox::inbox::Inbox;
use pillarbox::inbox::Key;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::{Context, progress, rate};
use crate::failure::Failure;
use crate::ours::Ours;
use crate::report::{Measurement, Pairs};

const CONSUMER: &str = "notifications";

const TABLES: &str = "
    create table if not exists notifications (
      event uuid primary key, customer text not null, content jsonb not null,
      created_at timestamptz not null default now());
    create index if not exists notifications_customer on notifications (customer)";

const HANDLE: &str = "insert into notifications (event, customer, content)
    select event, 'customer-' || event, $2::jsonb from unnest($1::uuid[]) as event";

/// About 200 bytes.
const CONTENT: &str = concat!(
    r#"{"currency": "EUR", "total": "1234.50", "note": "the customer asked for a delivery in the evening, after six", "#,
    r#""lines": [{"article": "4711", "pieces": 3}, {"article": "4712", "pieces": 1}]}"#
);

struct Figure {
    name: &'static str,
    per_transaction: usize,
    /// Are the statements of the mark and of the handler prepared?
    prepared: bool,
    /// Is the handler called once per transaction?
    at_once: bool,
    against: &'static str,
    least: f64,
}

const FIGURES: [Figure; 4] = [
    Figure {
        name: "inbox-1",
        per_transaction: 1,
        prepared: false,
        at_once: false,
        against: "the bare handler, one event per transaction, not prepared",
        least: 0.6,
    },
    Figure {
        name: "inbox-prepared-1",
        per_transaction: 1,
        prepared: true,
        at_once: false,
        against: "the bare handler, one event per transaction, prepared",
        least: 0.6,
    },
    Figure {
        name: "inbox-500",
        per_transaction: 500,
        prepared: true,
        at_once: false,
        against: "the bare handler, called for each of 500 events per transaction",
        least: 0.6,
    },
    Figure {
        name: "inbox-500-at-once",
        per_transaction: 500,
        prepared: true,
        at_once: true,
        against: "one INSERT for 500 events per transaction",
        least: 0.6,
    },
];

pub(super) async fn measure(context: &Context<'_>) -> Result<Vec<Measurement>, Failure> {
    let _schema = Ours::new(context.database).await?;
    context.database.run(TABLES).await?;
    let mut connection = context.database.connection().await?;
    let mut found = Vec::new();
    for figure in &FIGURES {
        let events = context.scale.handled(figure.per_transaction);
        let inbox = if figure.prepared {
            Inbox::default().prepared()
        } else {
            Inbox::default()
        };
        let mut runs = Pairs::default();
        // Commits are as noisy as the disk, so there are many short runs.
        for _ in 0..context.scale.pairs() * 4 {
            for (inbox, speeds) in [(None, &mut runs.peer), (Some(&inbox), &mut runs.ours)] {
                context
                    .database
                    .run("truncate notifications, pillarbox.inbox")
                    .await?;
                speeds.push(figure.run(&mut connection, inbox, events).await?);
            }
        }
        let measured = Measurement::speeds(figure.name, figure.against, &runs, figure.least);
        progress(figure.name, measured.value);
        found.push(measured.detail("events", events));
    }
    Ok(found)
}

impl Figure {
    /// Events per second.
    async fn run(
        &self,
        connection: &mut PgConnection,
        inbox: Option<&Inbox>,
        events: u32,
    ) -> Result<f64, Failure> {
        let ids: Vec<Uuid> = (0..events).map(|_| Uuid::now_v7()).collect();
        let began = Instant::now();
        for batch in ids.chunks(self.per_transaction) {
            let mut transaction = connection.begin().await?;
            match inbox {
                None => self.handle(&mut transaction, batch).await?,
                Some(inbox) => {
                    let keys: Vec<Key> = batch.iter().copied().map(Key::event).collect();
                    let new = inbox.mark_all(&mut transaction, CONSUMER, &keys).await?;
                    let new = batch.iter().zip(new).filter_map(|(id, new)| new.then_some(*id));
                    let new: Vec<Uuid> = new.collect();
                    self.handle(&mut transaction, &new).await?;
                }
            }
            transaction.commit().await?;
        }
        Ok(rate(events, began.elapsed()))
    }

    async fn handle(&self, connection: &mut PgConnection, ids: &[Uuid]) -> Result<(), Failure> {
        let calls = ids.chunks(if self.at_once { ids.len().max(1) } else { 1 });
        for ids in calls {
            sqlx::query(HANDLE)
                .bind(ids)
                .bind(CONTENT)
                .persistent(self.prepared)
                .execute(&mut *connection)
                .await?;
        }
        Ok(())
    }
}
