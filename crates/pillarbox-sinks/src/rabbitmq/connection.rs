//! The connection, and what concerns all of its channels.
//!
//! **If we die here** the outcome of what was in flight is unknown, and it is sent again.

use std::sync::Arc;

use lapin::options::ExchangeDeclareOptions;
use lapin::types::FieldTable;
use pillarbox::Outcome;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::alarm::Alarm;
use super::channel::{self, Channel};
use super::classify;
use super::dial;
use super::pool::Outgoing;
use super::settings::Settings;
use crate::connector::Connect;

/// How many channels publish. Each is a process of its own in the broker.
pub(super) const CHANNELS: usize = 4;

impl Connect for Connection {
    type Settings = Settings;

    fn host(settings: &Settings) -> String {
        dial::host(settings)
    }

    async fn open(settings: Arc<Settings>) -> Result<Self, String> {
        match timeout(settings.connect_timeout, connect(&settings)).await {
            Ok(result) => result,
            Err(_) => Err(dial::timed_out(&settings)),
        }
    }

    fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }

    fn is_lost(&self) -> bool {
        !self.client.status().connected() || *self.lost.borrow()
    }

    async fn close(&self) {
        self.client.close(200, "closed by pillarbox".into()).await.ok();
    }
}

async fn connect(settings: &Settings) -> Result<Connection, String> {
    let client = Arc::new(dial::connect(settings).await?);
    let mut tasks = JoinSet::new();
    let lost = Arc::new(watch::Sender::new(false));
    let alarm = Alarm::listen(&client, settings, &mut tasks);
    let channels = (0..CHANNELS)
        .map(|_| channel::start(&client, settings, &alarm, &lost, &mut tasks))
        .collect();
    let connection = Connection {
        client,
        is_encrypted: settings.is_encrypted(),
        channels,
        lost,
        _tasks: tasks,
    };
    if settings.declare {
        connection.declare(settings, false).await?;
    }
    Ok(connection)
}

/// An open connection and its channels.
pub(super) struct Connection {
    client: Arc<lapin::Connection>,
    is_encrypted: bool,
    channels: Vec<Channel>,
    /// Does the broker no longer answer, although the connection is open?
    lost: Arc<watch::Sender<bool>>,
    /// Ends the tasks of the channels when it is dropped.
    _tasks: JoinSet<()>,
}

impl Connection {
    /// Did the broker block publishers?
    pub(super) fn is_blocked(&self) -> bool {
        self.client.status().blocked()
    }

    /// Publishes a message on the channel with the fewest. A message of a lane always takes the same channel, which keeps
    /// the order of its key. The call that waits for the outcome may be dropped: the channel goes on.
    pub(super) fn publish(&self, message: Outgoing) {
        let (size, frame_max) = (message.header_size, self.frame_max());
        if size > frame_max {
            let reason =
                format!("the headers take up to {size} bytes; the broker allows {frame_max} in a frame");
            return message.job.reply.report(Outcome::reject(reason));
        }
        let channel = match message.lane {
            Some(lane) => &self.channels[usize::from(lane) % self.channels.len()],
            None => self
                .channels
                .iter()
                .min_by_key(|channel| channel.load())
                .expect("a connection has channels"),
        };
        channel.publish(message.job);
    }

    /// The size limit of a frame.
    fn frame_max(&self) -> usize {
        usize::try_from(self.client.configuration().frame_max()).unwrap_or(usize::MAX)
    }

    /// Declares the exchange; `passive` only checks that it exists. It takes a channel of its own, because the broker
    /// closes the channel if it refuses.
    pub(super) async fn declare(&self, settings: &Settings, passive: bool) -> Result<(), String> {
        let channel = self
            .client
            .create_channel()
            .await
            .map_err(|error| classify::words(&error))?;
        let options = ExchangeDeclareOptions {
            passive,
            durable: true,
            ..ExchangeDeclareOptions::default()
        };
        channel
            .exchange_declare(
                settings.exchange.clone(),
                settings.kind.clone(),
                options,
                FieldTable::default(),
            )
            .await
            .map_err(|error| classify::no_exchange(&error, settings))
    }
}
