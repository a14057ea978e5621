//! The connection and what is done on it as a whole.
//!
//! **If we die here** what was in flight is uncertain, and comes again.

use std::sync::Arc;

use lapin::Connection;
use lapin::options::ExchangeDeclareOptions;
use lapin::types::FieldTable;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::classify;
use super::dial;
use super::lane::{self, Lane, Message, Ticket};
use super::settings::Settings;
use crate::slot;

/// How many channels carry messages. While one waits for its cohort, the others send.
const LANES: usize = 4;

/// The connection that is there, being opened, or not there.
pub(super) type Links = slot::Links<Link>;

impl slot::Connection for Link {
    fn is_lost(&self) -> bool {
        !self.connection.status().connected()
    }
}

impl slot::Open for Link {
    type Settings = Settings;

    async fn open(settings: Arc<Settings>) -> Result<Self, String> {
        match timeout(settings.connect_timeout, connect(&settings)).await {
            Ok(result) => result,
            Err(_) => Err(dial::silence(&settings)),
        }
    }

    async fn goodbye(&self) {
        self.connection.close(200, "goodbye".into()).await.ok();
    }
}

async fn connect(settings: &Settings) -> Result<Link, String> {
    let connection = dial::connect(settings).await?;
    let mut tasks = JoinSet::new();
    let connection = Arc::new(connection);
    let lanes = (0..LANES)
        .map(|_| lane::start(&connection, &settings.exchange, settings.mandatory, &mut tasks))
        .collect();
    let link = Link {
        connection,
        lanes,
        _tasks: tasks,
    };
    if settings.declare {
        link.declare(settings, false).await?;
    }
    Ok(link)
}

/// An open connection and the lanes on it.
pub(super) struct Link {
    connection: Arc<Connection>,
    lanes: Vec<Lane>,
    /// Dropped with the link, which ends the lanes.
    _tasks: JoinSet<()>,
}

impl Link {
    /// Has the broker asked us to stop?
    pub(super) fn is_blocked(&self) -> bool {
        self.connection.status().blocked()
    }

    /// How large one frame may be.
    pub(super) fn frame_max(&self) -> usize {
        usize::try_from(self.connection.configuration().frame_max()).unwrap_or(usize::MAX)
    }

    /// Hands a message to the lane with the least to do, and if it has a place in an order, to the one that all
    /// with this number take. What it waits for may be dropped: the lane goes on.
    pub(super) fn hand_over(&self, message: Message, order: Option<u16>) -> Ticket {
        let lane = match order {
            Some(number) => &self.lanes[usize::from(number) % self.lanes.len()],
            None => self
                .lanes
                .iter()
                .min_by_key(|lane| lane.load())
                .expect("a link has lanes"),
        };
        lane.hand_over(message)
    }

    /// Declares the exchange; passively, it only looks whether it is there. On a channel of its own, which
    /// a refusal costs.
    pub(super) async fn declare(&self, settings: &Settings, passive: bool) -> Result<(), String> {
        let channel = self
            .connection
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
