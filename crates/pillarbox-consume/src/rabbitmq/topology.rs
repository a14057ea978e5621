//! Declares the queue, its bindings and its dead letter queue.
//!
//! The queue's own dead-letter exchange also leads to the dead letter queue. So a message that the broker itself gives up on
//! (a delivery limit, set here or by a policy) is kept. Quorum queues move such messages at least once.
//!
//! **If we die here** everything declared stays, and declaring it again has no effect.

use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Channel, Error, ErrorKind, ExchangeKind};

use super::config::{Binding, Config, QueueKind};

/// PRECONDITION_FAILED, ACCESS_REFUSED: see the AMQP 0-9-1 specification, 1.2.
const PRECONDITION_FAILED: u16 = 406;
const ACCESS_REFUSED: u16 = 403;

/// Declares everything. The broker closes the channel if it rejects a declaration.
pub(super) async fn declare(channel: &Channel, config: &Config) -> Result<(), String> {
    for binding in &config.bindings {
        exchange(channel, binding).await?;
    }
    queue(channel, &config.dead_queue, dead_arguments(config)).await?;
    queue(channel, &config.queue, arguments(config)).await?;
    for binding in &config.bindings {
        bind(channel, &config.queue, binding).await?;
    }
    Ok(())
}

/// Declares only the dead letter queue.
pub(super) async fn declare_dead_queue(channel: &Channel, config: &Config) -> Result<(), String> {
    queue(channel, &config.dead_queue, dead_arguments(config)).await
}

async fn exchange(channel: &Channel, binding: &Binding) -> Result<(), String> {
    let options = ExchangeDeclareOptions {
        durable: true,
        ..ExchangeDeclareOptions::default()
    };
    let kind = match binding.kind.as_str() {
        "topic" => ExchangeKind::Topic,
        "direct" => ExchangeKind::Direct,
        "fanout" => ExchangeKind::Fanout,
        "headers" => ExchangeKind::Headers,
        other => ExchangeKind::Custom(other.to_owned()),
    };
    let name = short(&binding.exchange)?;
    let declared = channel
        .exchange_declare(name, kind, options, FieldTable::default())
        .await;
    declared.map_err(|error| rejected(&error, &format!("the exchange `{}`", binding.exchange)))
}

async fn queue(channel: &Channel, name: &str, arguments: FieldTable) -> Result<(), String> {
    let options = QueueDeclareOptions {
        durable: true,
        ..QueueDeclareOptions::default()
    };
    let declared = channel.queue_declare(short(name)?, options, arguments).await;
    declared
        .map(|_| ())
        .map_err(|error| rejected(&error, &format!("the queue `{name}`")))
}

async fn bind(channel: &Channel, queue: &str, binding: &Binding) -> Result<(), String> {
    let bound = channel
        .queue_bind(
            short(queue)?,
            short(&binding.exchange)?,
            short(&binding.routing_key)?,
            QueueBindOptions::default(),
            FieldTable::default(),
        )
        .await;
    bound.map_err(|error| {
        rejected(
            &error,
            &format!("the binding of `{queue}` to `{}`", binding.exchange),
        )
    })
}

fn arguments(config: &Config) -> FieldTable {
    let mut arguments = dead_arguments(config);
    let mut set = |name: &'static str, value: AMQPValue| {
        arguments.insert(name.into(), value);
    };
    set("x-dead-letter-exchange", text(""));
    set("x-dead-letter-routing-key", text(&config.dead_queue));
    if config.single_active {
        set("x-single-active-consumer", AMQPValue::Boolean(true));
    }
    if config.kind == QueueKind::Quorum {
        set("x-dead-letter-strategy", text("at-least-once"));
        // The strategy requires it. It has no effect on a queue without a length limit.
        set("x-overflow", text("reject-publish"));
        if let Some(limit) = config.delivery_limit {
            set("x-delivery-limit", AMQPValue::LongLongInt(limit.into()));
        }
    }
    arguments
}

fn dead_arguments(config: &Config) -> FieldTable {
    let mut arguments = FieldTable::default();
    let kind = match config.kind {
        QueueKind::Quorum => "quorum",
        QueueKind::Classic => "classic",
    };
    arguments.insert("x-queue-type".into(), text(kind));
    arguments
}

fn text(value: &str) -> AMQPValue {
    AMQPValue::LongString(value.into())
}

pub(super) fn short(name: &str) -> Result<ShortString, String> {
    ShortString::try_new(name)
        .map_err(|_| format!("`{name}` is too long: {} bytes (AMQP allows 255)", name.len()))
}

fn rejected(error: &Error, what: &str) -> String {
    let ErrorKind::ProtocolError(answer) = error.kind() else {
        return format!("{what} cannot be declared: {error}");
    };
    let advice = match answer.get_id() {
        PRECONDITION_FAILED => {
            "it exists with other settings: use the same here, delete it, or call `declared_elsewhere`"
        }
        ACCESS_REFUSED => "grant the user `configure` on it, or call `declared_elsewhere`",
        _ => "see the broker's log",
    };
    format!("{what} cannot be declared: {} ({advice})", answer.get_message())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(table: &FieldTable) -> Vec<String> {
        table.inner().keys().map(ToString::to_string).collect()
    }

    #[test]
    fn a_quorum_queue_has_one_active_consumer_and_a_dead_letter_queue() {
        let table = arguments(&Config::new("amqp://a", "letters").delivery_limit(50));
        assert_eq!(table.inner()["x-queue-type"], text("quorum"));
        assert_eq!(
            table.inner()["x-single-active-consumer"],
            AMQPValue::Boolean(true)
        );
        assert_eq!(table.inner()["x-dead-letter-routing-key"], text("letters.dead"));
        assert_eq!(table.inner()["x-delivery-limit"], AMQPValue::LongLongInt(50));
    }

    #[test]
    fn a_classic_queue_gets_only_arguments_that_it_knows() {
        let config = Config::new("amqp://a", "letters").kind(QueueKind::Classic);
        let table = arguments(&config.shared().delivery_limit(50));
        assert_eq!(
            keys(&table),
            [
                "x-dead-letter-exchange",
                "x-dead-letter-routing-key",
                "x-queue-type"
            ]
        );
        assert_eq!(table.inner()["x-queue-type"], text("classic"));
    }
}
