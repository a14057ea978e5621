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
use pillarbox::Outcome;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::channel::Job;
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
    in_flight: Arc<AtomicUsize>,
}

/// Messages of one call for one connection.
struct Group<'a> {
    member: &'a Member,
    /// Have they keys?
    keyed: bool,
    messages: Vec<Outgoing>,
}

/// A message to send, and what decides about its way.
pub(super) struct Outgoing {
    pub(super) job: Job,
    /// The largest size of the frame with its properties.
    pub(super) header_size: usize,
    pub(super) lane: Option<u16>,
    /// The connection that [`Pool::choose`] returned.
    pub(super) member: usize,
}

/// Counts an event until its outcome is known, also while it waits for a connection to be opened.
pub(super) struct InFlight(Arc<AtomicUsize>);

impl InFlight {
    pub(super) fn count(counter: &Arc<AtomicUsize>) -> Self {
        counter.fetch_add(1, Ordering::Relaxed);
        Self(counter.clone())
    }
}

impl Drop for InFlight {
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
            in_flight: Arc::default(),
        };
        Self {
            members: (0..settings.connections).map(member).collect(),
            settings,
        }
    }

    /// The connection for an event of this lane, or for one without a key. The event counts there from now on.
    pub(super) fn choose(&self, lane: Option<u16>) -> (usize, InFlight) {
        let place = match lane {
            // Not by the lane alone: that chooses the channel too.
            Some(lane) => usize::from(lane) / CHANNELS % self.members.len(),
            None => self.with_fewest().unwrap_or_default(),
        };
        (place, InFlight::count(&self.members[place].in_flight))
    }

    fn with_fewest(&self) -> Option<usize> {
        let loads = self
            .members
            .iter()
            .map(|member| member.in_flight.load(Ordering::Relaxed));
        loads
            .enumerate()
            .min_by_key(|(_, load)| *load)
            .map(|(place, _)| place)
    }

    /// Queues messages at their connections. Ends when all are queued or have an outcome.
    pub(super) async fn publish(&self, messages: Vec<Outgoing>) {
        let group = |member| {
            [true, false].map(|keyed| Group {
                member,
                keyed,
                messages: Vec::new(),
            })
        };
        let mut groups: Vec<Group<'_>> = self.members.iter().flat_map(group).collect();
        for message in messages {
            let place = 2 * message.member + usize::from(message.lane.is_none());
            groups[place].messages.push(message);
        }
        groups.retain(|group| !group.messages.is_empty());
        join_all(groups.into_iter().map(|group| self.publish_group(group))).await;
    }

    /// Queues the messages of a group, or reports why that is not possible.
    async fn publish_group(&self, group: Group<'_>) {
        let _turn = match group.keyed {
            true => Some(group.member.turn.lock().await),
            false => None,
        };
        let connection = match group.member.connector.get_recent().await {
            Err(reason) if !group.keyed => self.any_open().ok_or(reason),
            taken => taken,
        };
        match connection {
            Ok(connection) => group
                .messages
                .into_iter()
                .for_each(|message| connection.publish(message)),
            Err(reason) => {
                for message in group.messages {
                    message.job.reply.report(Outcome::unavailable(reason.clone()));
                }
            }
        }
    }

    fn any_open(&self) -> Option<Arc<Connection>> {
        self.members.iter().find_map(|member| member.connector.get_open())
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

    use bytes::Bytes;
    use lapin::BasicProperties;
    use lapin::types::ShortString;
    use tokio::net::TcpListener;
    use tokio::sync::mpsc::unbounded_channel;
    use tokio::time::Instant;
    use uuid::Uuid;

    use super::*;
    use crate::rabbitmq::Config;
    use crate::rabbitmq::channel::Message;
    use crate::rabbitmq::reply::Reply;

    #[tokio::test]
    async fn a_broker_that_does_not_answer_costs_one_timeout_for_any_number_of_connections() {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("amqp://{}", silent.local_addr().unwrap());
        let mut config: Config =
            toml::from_str(&format!("exchange = \"events\"\nurl = {url:?}\nconnections = 8")).unwrap();
        config.connect_timeout = Duration::from_millis(300);
        let pool = Pool::new("queue", Settings::new("queue", &config).unwrap());
        let began = Instant::now();
        let (replies, mut answers) = unbounded_channel();
        let (member, in_flight) = pool.choose(None);
        let message = Outgoing {
            job: Job {
                message: Message {
                    id: Uuid::nil(),
                    routing_key: ShortString::default(),
                    properties: BasicProperties::default(),
                    body: Bytes::new(),
                },
                reply: Reply::new(replies, 0, in_flight),
            },
            header_size: 0,
            lane: None,
            member,
        };
        pool.publish(vec![message]).await;
        let (_, outcome) = answers.recv().await.unwrap();
        assert_eq!(outcome.name(), "unavailable");
        assert!(
            began.elapsed() < Duration::from_millis(900),
            "{:?}",
            began.elapsed()
        );
    }
}
