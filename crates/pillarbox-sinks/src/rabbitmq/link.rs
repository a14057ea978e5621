//! The one connection: opened when it is needed, by whoever needs it first, and shared.
//!
//! Everybody who asks while it is being opened waits for the same attempt and hears the same answer, so
//! that a thousand deliveries make one connection and a broker that is away is asked once.
//!
//! A channel serves one message at a time; the reasons stand in the module above. FIGURES

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use lapin::options::{ConfirmSelectOptions, ExchangeDeclareOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Connection, ConnectionBuilder, ConnectionProperties, Error};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::classify;
use super::settings::Settings;

/// Channels that messages may not take: `check` needs one.
const RESERVED_CHANNELS: usize = 2;
/// How long a farewell may take.
const GOODBYE: Duration = Duration::from_secs(5);

/// The connection that is there, being opened, or not there.
pub(super) struct Links {
    settings: Arc<Settings>,
    current: Mutex<Option<Opening>>,
}

type Opening = Shared<BoxFuture<'static, Result<Arc<Link>, String>>>;

impl Links {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            settings: Arc::new(settings),
            current: Mutex::new(None),
        }
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The connection, opened if need be. May be dropped: whoever else waits goes on opening it.
    pub(super) async fn get(&self) -> Result<Arc<Link>, String> {
        let opening = {
            let mut current = self.current();
            match current.as_ref().filter(|opening| !is_over(opening)) {
                Some(opening) => opening.clone(),
                None => current
                    .insert(open(self.settings.clone()).boxed().shared())
                    .clone(),
            }
        };
        opening.await
    }

    /// Forgets the connection, so that the next one who asks opens another.
    pub(super) fn forget(&self) {
        self.current().take();
    }

    /// Closes the connection if there is one.
    pub(super) async fn close(&self) {
        let opening = self.current().take();
        if let Some(Ok(link)) = opening.as_ref().and_then(Shared::peek) {
            let goodbye = link.connection.close(200, "goodbye".into());
            // Whatever it answers, we are leaving.
            timeout(GOODBYE, goodbye).await.map(|closed| closed.ok()).ok();
        }
    }

    fn current(&self) -> MutexGuard<'_, Option<Opening>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Failed, or open once and lost since.
fn is_over(opening: &Opening) -> bool {
    match opening.peek() {
        None => false,
        Some(Ok(link)) => !link.connection.status().connected(),
        Some(Err(_)) => true,
    }
}

async fn open(settings: Arc<Settings>) -> Result<Arc<Link>, String> {
    match timeout(settings.connect_timeout, connect(&settings)).await {
        Ok(result) => result.map(Arc::new),
        Err(_) => Err(format!(
            "RabbitMQ at {}:{} did not answer within {:?}",
            settings.uri.authority.host, settings.uri.authority.port, settings.connect_timeout
        )),
    }
}

async fn connect(settings: &Settings) -> Result<Link, String> {
    let properties =
        ConnectionProperties::default().with_connection_name(settings.connection_name.clone().into());
    let builder = ConnectionBuilder::new().map_err(|error| error.to_string())?;
    let connection = builder
        .with_uri(settings.uri.clone())
        .with_properties(properties)
        .with_tls_config(settings.tls.clone())
        .connect()
        .await
        .map_err(|error| classify::not_connected(&error, settings))?;
    let channels = usize::from(connection.configuration().channel_max()).saturating_sub(RESERVED_CHANNELS);
    let link = Link {
        connection,
        idle: Mutex::new(Vec::new()),
        permits: Semaphore::new(channels.max(1)),
    };
    if settings.declare {
        link.declare(settings, false).await?;
    }
    Ok(link)
}

/// An open connection and its channels.
pub(super) struct Link {
    connection: Connection,
    /// Channels in confirm mode with nothing in flight.
    idle: Mutex<Vec<Channel>>,
    permits: Semaphore,
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

    /// A channel of one's own. Dropped with its message unconfirmed it is closed; only one that was
    /// [given back](Lane::give_back) serves again.
    pub(super) async fn lane(&self) -> Result<Lane<'_>, Error> {
        // The semaphore is never closed; without a permit the broker would refuse the channel.
        let permit = self.permits.acquire().await.ok();
        let idle = loop {
            match self.idle().pop() {
                Some(channel) if !channel.status().connected() => {}
                found => break found,
            }
        };
        let channel = match idle {
            Some(channel) => channel,
            None => {
                let channel = self.connection.create_channel().await?;
                channel.confirm_select(ConfirmSelectOptions::default()).await?;
                channel
            }
        };
        Ok(Lane {
            link: self,
            channel,
            _permit: permit,
        })
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

    fn idle(&self) -> MutexGuard<'_, Vec<Channel>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A channel that one message has for itself.
pub(super) struct Lane<'a> {
    link: &'a Link,
    pub(super) channel: Channel,
    _permit: Option<SemaphorePermit<'a>>,
}

impl Lane<'_> {
    /// Lets another message have it. Only after the confirmation.
    pub(super) fn give_back(self) {
        self.link.idle().push(self.channel);
    }
}
