//! A Kafka topic of the test's own, and what is in it.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{Consumer, StreamConsumer};
use rdkafka::message::{Headers, Message};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

/// Long enough for a broker on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A topic with one partition.
#[derive(Debug)]
pub struct Topic {
    brokers: String,
    /// What it is called.
    pub name: String,
}

/// One record as a consumer sees it.
#[derive(Debug)]
pub struct Record {
    /// What decides its partition.
    pub key: Option<String>,
    /// What it carries.
    pub payload: Vec<u8>,
    /// Its headers, by name.
    pub headers: BTreeMap<String, String>,
}

impl Topic {
    /// Makes a topic with these settings.
    ///
    /// # Panics
    /// When the broker does not make it.
    pub async fn create(brokers: &str, name: &str, settings: &[(&str, &str)]) -> Self {
        let topic = Self::existing(brokers, name);
        let new = settings.iter().fold(
            NewTopic::new(name, 1, TopicReplication::Fixed(1)),
            |new, (key, value)| new.set(key, value),
        );
        let made = topic.admin().create_topics([&new], &AdminOptions::new()).await;
        made.expect("Kafka answers; run the tests by scripts/test")
            .remove(0)
            .expect("a topic");
        topic
    }

    /// One that is there already.
    pub fn existing(brokers: &str, name: &str) -> Self {
        Self {
            brokers: brokers.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Changes one of its settings.
    ///
    /// # Panics
    /// When the broker does not.
    pub async fn set(&self, key: &str, value: &str) {
        let change = AlterConfig::new(ResourceSpecifier::Topic(&self.name)).set(key, value);
        let changed = self.admin().alter_configs([&change], &AdminOptions::new()).await;
        changed
            .expect("Kafka answers")
            .remove(0)
            .expect("the setting is changed");
    }

    /// Everything that is in it.
    ///
    /// # Panics
    /// If the broker has more records and does not deliver them.
    pub async fn read(&self) -> Vec<Record> {
        let consumer: StreamConsumer = self
            .client()
            .set("group.id", &self.name)
            .set("enable.auto.commit", "false")
            .create()
            .expect("a consumer");
        let (first, end) = consumer
            .fetch_watermarks(&self.name, 0, TIMEOUT)
            .expect("the topic is there");
        let mut partitions = TopicPartitionList::new();
        partitions
            .add_partition_offset(&self.name, 0, Offset::Beginning)
            .expect("a partition");
        consumer.assign(&partitions).expect("the partition is ours");
        let mut records = Vec::new();
        let mut next = first;
        while next < end {
            let message = tokio::time::timeout(TIMEOUT, consumer.recv()).await;
            let message = message.expect("the topic has more").expect("a record");
            next = message.offset() + 1;
            records.push(record(&message));
        }
        records
    }

    /// Leaves nothing behind.
    ///
    /// # Panics
    /// When the broker does not answer.
    pub async fn delete(&self) {
        let gone = self
            .admin()
            .delete_topics(&[&self.name], &AdminOptions::new())
            .await;
        gone.expect("Kafka answers").remove(0).expect("the topic goes");
    }

    fn admin(&self) -> AdminClient<DefaultClientContext> {
        self.client().create().expect("a client")
    }

    fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.brokers);
        config
    }
}

fn record(message: &impl Message) -> Record {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let headers = message.headers().map_or_else(BTreeMap::new, |headers| {
        let all = headers.iter();
        all.map(|header| (header.key.to_owned(), text(header.value.unwrap_or_default())))
            .collect()
    });
    Record {
        key: message.key().map(text),
        payload: message.payload().unwrap_or_default().to_vec(),
        headers,
    }
}
