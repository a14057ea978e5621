//! The connections of a destination.
//!
//! An event with a key always takes the same connection and the same channel, which keeps the order of its key. Any other takes
//! the connection with the fewest events in flight, and if that cannot be opened, one that is open. It opens no second one:
//! each may take the whole timeout of a broker that does not answer, and together they would take that of the attempt.
//!
//! **If we die here** the outcome of what was in flight is unknown, and it is sent again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::timeout;

use super::connection::{CHANNELS, Connection};
use super::settings::Settings;
use crate::connector::Connector;

/// See the module.
pub(super) struct Pool {
    settings: Arc<Settings>,
    members: Vec<Member>,
}

struct Member {
    connector: Connector<Connection>,
    /// Queues events with a key in the order of their calls, also while the connection is opened.
    turn: Mutex<()>,
    in_flight: AtomicUsize,
}

/// The use of a connection by one event. Ends when it is dropped.
pub(super) struct Use<'a> {
    pub(super) connection: Arc<Connection>,
    _in_flight: InFlight<'a>,
    /// Held by an event with a key until its message is queued.
    turn: Option<MutexGuard<'a, ()>>,
}

impl Use<'_> {
    /// The message is queued: the next event with a key may follow.
    pub(super) fn queued(&mut self) {
        self.turn = None;
    }
}

/// Counts an event, also while it waits for a connection to be opened.
struct InFlight<'a>(&'a AtomicUsize);

impl<'a> InFlight<'a> {
    fn count(counter: &'a AtomicUsize) -> Self {
        counter.fetch_add(1, Ordering::Relaxed);
        Self(counter)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pool {
    /// Of the destination `name`. It opens no connection.
    pub(super) fn new(name: &str, settings: Settings) -> Self {
        let settings = Arc::new(settings);
        let member = |_| Member {
            connector: Connector::sharing(name, settings.clone()),
            turn: Mutex::new(()),
            in_flight: AtomicUsize::new(0),
        };
        Self {
            members: (0..settings.connections).map(member).collect(),
            settings,
        }
    }

    /// A connection for an event of this lane, or for one without a key.
    ///
    /// # Errors
    /// Why none can be opened.
    pub(super) async fn take(&self, lane: Option<u16>) -> Result<Use<'_>, String> {
        let Some(lane) = lane else {
            return self.take_any().await;
        };
        // Not by the lane alone: that chooses the channel too.
        let member = &self.members[usize::from(lane) / CHANNELS % self.members.len()];
        let turn = member.turn.lock().await;
        member.take(Some(turn)).await
    }

    async fn take_any(&self) -> Result<Use<'_>, String> {
        if let [member] = &self.members[..] {
            return member.take(None).await;
        }
        let mut members: Vec<&Member> = self.members.iter().collect();
        members.sort_by_cached_key(|member| member.in_flight.load(Ordering::Relaxed));
        let Some((first, others)) = members.split_first() else {
            return Err("the destination has no connections".to_owned());
        };
        match first.take(None).await {
            Err(reason) => others.iter().find_map(|member| member.take_open()).ok_or(reason),
            taken => taken,
        }
    }

    /// Probes every connection.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub(super) async fn check(&self) -> Result<(), String> {
        let probes = join_all(self.members.iter().map(|member| member.probe(&self.settings)));
        probes.await.into_iter().collect()
    }

    pub(super) async fn close(&self) {
        join_all(self.members.iter().map(|member| member.connector.close())).await;
    }
}

impl Member {
    async fn take<'a>(&'a self, turn: Option<MutexGuard<'a, ()>>) -> Result<Use<'a>, String> {
        let in_flight = InFlight::count(&self.in_flight);
        Ok(Use {
            connection: self.connector.get_recent().await?,
            _in_flight: in_flight,
            turn,
        })
    }

    /// Takes the connection if it is open.
    fn take_open(&self) -> Option<Use<'_>> {
        Some(Use {
            connection: self.connector.get_open()?,
            _in_flight: InFlight::count(&self.in_flight),
            turn: None,
        })
    }

    async fn probe(&self, settings: &Settings) -> Result<(), String> {
        let limit = settings.connect_timeout;
        let probe = timeout(limit, self.try_probe(settings));
        probe.await.unwrap_or_else(|_| {
            // The connection is useless, even if TCP keeps it open.
            self.connector.reset();
            Err(format!("RabbitMQ did not answer within {limit:?}"))
        })
    }

    async fn try_probe(&self, settings: &Settings) -> Result<(), String> {
        let connection = self.connector.get().await?;
        if connection.is_blocked() {
            return Err("RabbitMQ blocks publishers (check its memory and disk alarms)".to_owned());
        }
        if settings.exchange.as_str().is_empty() {
            return Ok(()); // the default exchange always exists
        }
        connection.declare(settings, true).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::net::TcpListener;
    use tokio::time::Instant;

    use super::*;
    use crate::rabbitmq::Config;

    #[tokio::test]
    async fn a_broker_that_does_not_answer_costs_one_timeout_for_any_number_of_connections() {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("amqp://{}", silent.local_addr().unwrap());
        let mut config: Config =
            toml::from_str(&format!("exchange = \"events\"\nurl = {url:?}\nconnections = 8")).unwrap();
        config.connect_timeout = Duration::from_millis(300);
        let pool = Pool::new("queue", Settings::new("queue", &config).unwrap());
        let began = Instant::now();
        assert!(pool.take(None).await.is_err());
        assert!(
            began.elapsed() < Duration::from_millis(900),
            "{:?}",
            began.elapsed()
        );
    }
}
