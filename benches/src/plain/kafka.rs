//! A bare relay to Kafka: claims a thousand, sends them, awaits their delivery reports, acks them.

use futures_util::future::join_all;
use rdkafka::ClientConfig;
use rdkafka::producer::{FutureProducer, FutureRecord};
use uuid::Uuid;

use super::{Claimed, Plain};
use crate::failure::Failure;

/// A producer that is as careful as ours: nothing is acked that all replicas do not have.
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

    /// Drains the table; rows say their topic.
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
            // The queue holds a hundred thousand, a batch is a thousand: it is never full.
            reports.push(self.producer.send_result(record).map_err(|(error, _)| error)?);
        }
        for report in join_all(reports).await {
            match report {
                Ok(Ok(_)) => {}
                Ok(Err((error, _))) => return Err(error.into()),
                Err(_) => return Err(Failure::said("the producer ended before it reported")),
            }
        }
        Ok(rows.iter().map(|row| row.id).collect())
    }
}
