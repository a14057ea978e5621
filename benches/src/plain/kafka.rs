//! A bare relay to Kafka: claims 1,000 rows, sends them, waits for their delivery reports, acks them.

use futures_util::future::join_all;
use rdkafka::ClientConfig;
use rdkafka::producer::{FutureProducer, FutureRecord};
use uuid::Uuid;

use super::{Claimed, Plain};
use crate::failure::Failure;

/// A producer with the guarantees of the Kafka sink: a row is acked when all in-sync replicas have it.
pub(crate) struct Relay {
    producer: FutureProducer,
}

impl Relay {
    pub(crate) fn new(brokers: &str) -> Result<Self, Failure> {
        let producer = ClientConfig::new()
            .set("bootstrap.servers", brokers)
            .set("acks", "all")
            .set("enable.idempotence", "true")
            .create()?;
        Ok(Self { producer })
    }

    /// Drains the table into the topics of its rows.
    pub(crate) async fn drain(&self, plain: &mut Plain<'_>) -> Result<(), Failure> {
        let mut claimed = plain.turn(&[]).await?;
        while !claimed.is_empty() {
            let ids = self.send(&claimed).await?;
            claimed = plain.turn(&ids).await?;
        }
        Ok(())
    }

    async fn send(&self, rows: &[Claimed]) -> Result<Vec<Uuid>, Failure> {
        let mut reports = Vec::with_capacity(rows.len());
        for row in rows {
            let record = FutureRecord::<(), _>::to(&row.topic).payload(&row.payload);
            // The queue holds 100,000 records and a batch has 1,000, so it is never full.
            reports.push(self.producer.send_result(record).map_err(|(error, _)| error)?);
        }
        for report in join_all(reports).await {
            match report {
                Ok(Ok(_)) => {}
                Ok(Err((error, _))) => return Err(error.into()),
                Err(_) => return Err(Failure::new("the producer closed before its delivery report")),
            }
        }
        Ok(rows.iter().map(|row| row.id).collect())
    }
}
