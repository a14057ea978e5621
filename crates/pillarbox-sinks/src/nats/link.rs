//! The connection and what is done on it.
//!
//! A client of the library is used for one connection; `auth.rs` says how it is kept from making a second.
//! Its queue is short, so that what waits waits with us, where giving up means that nothing is sent.
//!
//! **If we die here** what was in flight is uncertain, and comes again.

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
use crate::slot;
use crate::tls::Tls;

/// How many messages the client may hold that are not in its write buffer yet.
const QUEUE: usize = 64;
/// How often we ask whether the server is still there; at the third unanswered time it is not.
const PING: Duration = Duration::from_secs(10);
/// How many denials may be unread before some are lost; their messages then run into their timeout.
const DENIALS: usize = 1024;
/// The dispatcher gives up long before, and `check` has a limit of its own.
const NEVER: Duration = Duration::from_secs(24 * 3600);

/// The connection that is there, being opened, or not there.
pub(super) type Links = slot::Links<Link>;

/// An open connection.
pub(super) struct Link {
    client: Client,
    jetstream: Context,
    lost: watch::Receiver<bool>,
    denials: broadcast::Sender<Denied>,
}

impl slot::Connection for Link {
    fn is_lost(&self) -> bool {
        *self.lost.borrow() || self.client.connection_state() != State::Connected
    }
}

impl slot::Open for Link {
    type Settings = Settings;

    async fn open(settings: Arc<Settings>) -> Result<Self, String> {
        match timeout(settings.connect_timeout, connect(&settings)).await {
            Ok(result) => result,
            Err(_) => Err(format!(
                "NATS did not answer within {:?}",
                settings.connect_timeout
            )),
        }
    }

    async fn goodbye(&self) {
        self.client.drain().await.ok();
    }
}

/// The first server that lets us in. What is said of the last one is said, if none does.
async fn connect(settings: &Settings) -> Result<Link, String> {
    let mut said = String::new();
    for server in &settings.servers {
        match connect_to(settings, server).await {
            Ok(link) => return link.with_stream(settings).await,
            Err(reason) => said = reason,
        }
    }
    Err(said)
}

async fn connect_to(settings: &Settings, server: &ServerAddr) -> Result<Link, String> {
    let (is_lost, lost) = watch::channel(false);
    let (denials, _) = broadcast::channel(DENIALS);
    let denied = denials.clone();
    let options = ConnectOptions::with_auth_callback(auth::once(settings.identity.clone()))
        .name(&settings.connection_name)
        .connection_timeout(settings.patience())
        .ping_interval(PING)
        .client_capacity(QUEUE)
        // The next connection is ours to make, to the servers that were named.
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
    Ok(Link {
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
                denials.send(denied).ok(); // nobody may be waiting any more
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

impl Link {
    /// Sends a message and waits for its confirmation. May be dropped: what the client has not taken yet
    /// is never sent.
    pub(super) async fn publish(&self, message: OutboundMessage) -> Outcome {
        let subject = message.subject.clone();
        let mut denials = self.denials.subscribe();
        let taken = tokio::select! {
            biased;
            () = self.lost() => {
                return Outcome::unavailable("the connection was lost before the message was sent");
            }
            taken = self.jetstream.publish_message(message) => taken,
        };
        let confirmation = match taken {
            Ok(confirmation) => confirmation.into_future(),
            Err(error) => return classify::not_taken(&error),
        };
        tokio::select! {
            biased;
            confirmed = confirmation => match confirmed {
                Ok(_) => Outcome::Delivered, // a duplicate is there already
                Err(error) => classify::failure(&error, &subject),
            },
            denied = denied(&mut denials, &subject) => Outcome::retry(denied.advice()),
            () = self.lost() => classify::lost(),
        }
    }

    /// Is JetStream there, and the stream if one is named?
    pub(super) async fn look(&self, settings: &Settings) -> Result<(), String> {
        let mut denials = self.denials.subscribe();
        let (subject, asked) = match &settings.stream {
            Some(stream) => (
                format!("$JS.API.STREAM.INFO.{stream}"),
                self.ask_stream(stream).boxed(),
            ),
            None => ("$JS.API.INFO".to_owned(), self.ask_account().boxed()),
        };
        tokio::select! {
            biased;
            answer = asked => answer,
            denied = denied(&mut denials, &subject) => Err(denied.advice()),
            () = self.lost() => Err("the connection was lost while we asked".to_owned()),
        }
    }

    async fn ask_stream(&self, stream: &str) -> Result<(), String> {
        let found = self.jetstream.get_stream(stream).await;
        found.map(drop).map_err(|error| {
            format!("the stream `{stream}` cannot be used: {error}; create it, or set `create_stream`")
        })
    }

    /// Not by the client's own question: its answer has grown over the years, and an old server's is refused.
    async fn ask_account(&self) -> Result<(), String> {
        let unusable = |problem: String| {
            format!("JetStream cannot be used: {problem}; is it enabled on the server and for the account?")
        };
        let answer = self.jetstream.request::<_, _, Answer>("INFO", &()).await;
        let answer = answer.map_err(|error| unusable(error.to_string()))?;
        answer
            .error
            .map_or(Ok(()), |error| Err(unusable(error.to_string())))
    }

    /// Creates the stream if it is wanted and not there. One that is there is left as it is.
    async fn with_stream(self, settings: &Settings) -> Result<Self, String> {
        if let Some(config) = &settings.create {
            let created = self.jetstream.get_or_create_stream(config.clone()).await;
            created.map_err(|error| format!("the stream `{}` cannot be created: {error}", config.name))?;
        }
        Ok(self)
    }

    /// Waits until the connection is gone.
    async fn lost(&self) {
        // An error means that whoever would tell is gone, and the connection with it.
        self.lost.clone().wait_for(|lost| *lost).await.map(drop).ok();
    }
}

/// What matters of JetStream's answer about the account.
#[derive(Deserialize)]
struct Answer {
    error: Option<jetstream::Error>,
}

/// Waits until the server denies this subject. It does so without saying for which message: all that are
/// under way on it hear it.
async fn denied(denials: &mut broadcast::Receiver<Denied>, subject: &str) -> Denied {
    loop {
        match denials.recv().await {
            Ok(denied) if denied.concerns(subject) => return denied,
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => pending().await,
        }
    }
}
