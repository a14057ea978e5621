//! Why a measurement failed.

/// An error with its cause.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A failure without an underlying error.
    #[error("{0}")]
    Message(String),
    #[error("database: {0}")]
    Sql(#[from] sqlx::Error),
    #[error("{0}")]
    Store(#[from] pillarbox::StoreError),
    #[error("{0}")]
    Enqueue(#[from] pillarbox::EnqueueError),
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    #[error("{0}")]
    Settings(#[from] pillarbox_dispatch::SettingsError),
    #[error("{0}")]
    Sink(#[from] pillarbox_sinks::BuildError),
    #[error("RabbitMQ: {0}")]
    Amqp(#[from] lapin::Error),
    #[cfg(feature = "kafka")]
    #[error("Kafka: {0}")]
    Kafka(#[from] rdkafka::error::KafkaError),
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self::Message(message.into())
    }
}
