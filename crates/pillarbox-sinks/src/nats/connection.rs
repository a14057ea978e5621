//! The connection, and the requests on it.
//!
//! A client of the library makes one connection; `auth.rs` keeps it from making a second. Its queue is short: messages wait
//! in the sink, where a dropped attempt is never sent.
//!
//! **If we die here** the outcome of what was in flight is unknown, and it is sent again.

use std::future::{pending, ready};
use std::sync::Arc;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::context::ContextBuilder;
use async_nats::jetstream::context::traits::Publisher;
use async_nats::jetstream::message::OutboundMessage;
use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectOptions, Event, ServerAddr, ServerError};
use futures_util::FutureExt;
use pillarbox::Outcome;
use serde::Deserialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};
use tokio::time::timeout;

use super::auth;
use super::classify::{self, Denied};
use super::settings::Settings;
use crate::connector::Connect;
use crate::tls::Tls;

/// How many messages the client queues before its write buffer.
const QUEUE: usize = 64;
/// How often the server is pinged. After the third ping without an answer the connection is lost.
const PING: Duration = Duration::from_secs(10);
/// How many denials may be unread. Messages of a denial beyond that end with their timeout.
const DENIALS: usize = 1024;
/// The timeouts of the dispatcher and of `check` are shorter.
const NEVER: Duration = Duration::from_secs(24 * 3600);

/// An open connection.
pub(super) struct Connection {
    client: Client,
    is_encrypted: bool,
    jetstream: Context,
    lost: watch::Receiver<bool>,
    denials: broadcast::Sender<Denied>,
}

impl Connect for Connection {
    type Settings = Settings;

    fn host(settings: &Settings) -> String {
        let host = |server: &ServerAddr| format!("{}:{}", server.host(), server.port());
        settings.servers.iter().map(host).collect::<Vec<_>>().join(",")
    }

    async fn open(settings: Arc<Settings>) -> Result<Self, String> {
        match timeout(settings.connect_timeout, connect(&settings)).await {
            Ok(result) => result,
            Err(_) => Err(format!(
                "NATS did not answer within {:?}",
                settings.connect_timeout
            )),
        }
    }

    fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }

    fn is_lost(&self) -> bool {
        *self.lost.borrow() || self.client.connection_state() != State::Connected
    }

    async fn close(&self) {
        self.client.drain().await.ok();
    }
}

/// Connects to the first server that accepts. The error is that of the last server.
async fn connect(settings: &Settings) -> Result<Connection, String> {
    let mut last_error = String::new();
    for server in &settings.servers {
        match connect_to(settings, server).await {
            Ok(connection) => return connection.with_stream(settings).await,
            Err(reason) => last_error = reason,
        }
    }
    Err(last_error)
}

async fn connect_to(settings: &Settings, server: &ServerAddr) -> Result<Connection, String> {
    let (is_lost, lost) = watch::channel(false);
    let (denials, _) = broadcast::channel(DENIALS);
    let denied = denials.clone();
    let options = ConnectOptions::with_auth_callback(auth::once(settings.identity.clone()))
        .name(&settings.connection_name)
        .connection_timeout(settings.server_timeout())
        .ping_interval(PING)
        .client_capacity(QUEUE)
        // The sink makes the next connection, to the configured servers.
        .max_reconnects(1)
        .ignore_discovered_servers()
        .event_callback(move |event| {
            observe(event, &is_lost, &denied);
            ready(())
        });
    let client = with_tls(options, settings.tls.as_ref())
        .connect(server)
        .await
        .map_err(|error| classify::not_connected(&error, server, &settings.identity))?;
    Ok(Connection {
        // The client encrypts if either side asks for it.
        is_encrypted: settings.requires_tls(server) || client.server_info().tls_required,
        jetstream: ContextBuilder::new().timeout(NEVER).build(client.clone()),
        client,
        lost,
        denials,
    })
}

fn with_tls(options: ConnectOptions, tls: Option<&Tls>) -> ConnectOptions {
    let Some(tls) = tls else {
        return options;
    };
    let mut options = options.require_tls(true);
    if let Some(ca) = &tls.ca_file {
        options = options.add_root_certificates(ca.clone());
    }
    if let (Some(cert), Some(key)) = (&tls.cert_file, &tls.key_file) {
        options = options.add_client_certificate(cert.clone(), key.clone());
    }
    options
}

fn observe(event: Event, is_lost: &watch::Sender<bool>, denials: &broadcast::Sender<Denied>) {
    match event {
        Event::Disconnected | Event::Closed => {
            is_lost.send_replace(true);
        }
        Event::ServerError(ServerError::Other(text)) => {
            if let Some(denied) = Denied::from_text(&text) {
                denials.send(denied).ok(); // no message may be in flight
            }
        }
        Event::Connected
        | Event::LameDuckMode
        | Event::Draining
        | Event::SlowConsumer(_)
        | Event::ServerError(ServerError::AuthorizationViolation | ServerError::SlowConsumer(_))
        | Event::ClientError(_) => {}
    }
}

impl Connection {
    /// Sends a message and waits for its acknowledgement. May be dropped: a message that the client has not queued yet is
    /// never sent.
    pub(super) async fn publish(&self, message: OutboundMessage) -> Outcome {
        let subject = message.subject.clone();
        let mut denials = self.denials.subscribe();
        let queued = tokio::select! {
            biased;
            () = self.lost() => {
                return Outcome::unavailable("the connection was lost before the message was sent");
            }
            queued = self.jetstream.publish_message(message) => queued,
        };
        let confirmation = match queued {
            Ok(confirmation) => confirmation.into_future(),
            Err(error) => return classify::not_queued(&error),
        };
        tokio::select! {
            biased;
            confirmed = confirmation => match confirmed {
                Ok(_) => Outcome::Delivered, // also for a duplicate
                Err(error) => classify::failure(&error, &subject),
            },
            denied = denied(&mut denials, &subject) => Outcome::retry(denied.advice()),
            () = self.lost() => classify::lost(),
        }
    }

    /// Is JetStream available, and the stream if one is configured?
    pub(super) async fn probe(&self, settings: &Settings) -> Result<(), String> {
        let mut denials = self.denials.subscribe();
        let (subject, request) = match &settings.stream {
            Some(stream) => (
                format!("$JS.API.STREAM.INFO.{stream}"),
                self.probe_stream(stream).boxed(),
            ),
            None => ("$JS.API.INFO".to_owned(), self.probe_account().boxed()),
        };
        tokio::select! {
            biased;
            answer = request => answer,
            denied = denied(&mut denials, &subject) => Err(denied.advice()),
            () = self.lost() => Err("the connection was lost before the answer".to_owned()),
        }
    }

    async fn probe_stream(&self, stream: &str) -> Result<(), String> {
        let found = self.jetstream.get_stream(stream).await;
        found.map(drop).map_err(|error| {
            format!("the stream `{stream}` cannot be used: {error} (create it, or set `create_stream`)")
        })
    }

    /// A request of its own: that of the client library fails on the shorter answers of old servers.
    async fn probe_account(&self) -> Result<(), String> {
        let unusable = |problem: String| {
            format!("JetStream cannot be used: {problem} (enable it on the server and for the account)")
        };
        let answer = self.jetstream.request::<_, _, Answer>("INFO", &()).await;
        let answer = answer.map_err(|error| unusable(error.to_string()))?;
        answer
            .error
            .map_or(Ok(()), |error| Err(unusable(error.to_string())))
    }

    /// Creates the stream if `create_stream` is set and it does not exist. An existing stream stays as it is.
    async fn with_stream(self, settings: &Settings) -> Result<Self, String> {
        if let Some(config) = &settings.create {
            let created = self.jetstream.get_or_create_stream(config.clone()).await;
            created.map_err(|error| format!("the stream `{}` cannot be created: {error}", config.name))?;
        }
        Ok(self)
    }

    /// Waits until the connection is lost.
    async fn lost(&self) {
        // An error means that the client was dropped, and its connection with it.
        self.lost.clone().wait_for(|lost| *lost).await.map(drop).ok();
    }
}

/// The part of JetStream's answer about the account that matters.
#[derive(Deserialize)]
struct Answer {
    error: Option<jetstream::Error>,
}

/// Waits until the server denies this subject. A denial does not name the message, so it ends all that are in flight on the
/// subject.
async fn denied(denials: &mut broadcast::Receiver<Denied>, subject: &str) -> Denied {
    loop {
        match denials.recv().await {
            Ok(denied) if denied.concerns(subject) => return denied,
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => pending().await,
        }
    }
}
