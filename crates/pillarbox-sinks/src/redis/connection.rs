//! The connection, and the commands on it.
//!
//! **If we die here** the outcome of what was in flight is unknown, and it is sent again.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, PushInfo, PushKind, RedisResult, cmd};
use tokio::time::timeout;

use super::classify;
use super::settings::Settings;
use crate::connector::Connect;

/// A key that does not exist. The probe adds to it only if it exists, so it adds nothing.
const PROBE_KEY: &str = "pillarbox:check";

/// An open connection.
pub(super) struct Connection {
    client: MultiplexedConnection,
    is_encrypted: bool,
    lost: Arc<AtomicBool>,
}

impl Connect for Connection {
    type Settings = Settings;

    fn host(settings: &Settings) -> String {
        settings.address.clone()
    }

    async fn open(settings: Arc<Settings>) -> Result<Self, String> {
        match timeout(settings.connect_timeout, connect(&settings)).await {
            Ok(result) => result,
            Err(_) => Err(format!(
                "Redis at {} did not answer within {:?}",
                settings.address, settings.connect_timeout
            )),
        }
    }

    fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }

    fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }
}

async fn connect(settings: &Settings) -> Result<Connection, String> {
    let lost = Arc::new(AtomicBool::new(false));
    let flag = lost.clone();
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None) // `connect_timeout` covers all of it
        .set_response_timeout(None) // the dispatcher has the timeout of an attempt
        .set_push_sender(move |pushed: PushInfo| {
            if pushed.kind == PushKind::Disconnection {
                flag.store(true, Ordering::Release);
            }
            Ok::<(), Infallible>(())
        });
    let connected = settings
        .client
        .get_multiplexed_async_connection_with_config(&config);
    let client = connected
        .await
        .map_err(|error| classify::not_connected(&error, &settings.address))?;
    Ok(Connection {
        client,
        is_encrypted: settings.is_encrypted(),
        lost,
    })
}

impl Connection {
    /// Adds an entry and returns its id. May be dropped: an entry that is not written yet is never sent.
    pub(super) async fn add(&self, entry: &Cmd) -> RedisResult<String> {
        entry.query_async(&mut self.client.clone()).await
    }

    /// Does the server answer, and would it accept an entry?
    pub(super) async fn probe(&self) -> RedisResult<()> {
        let mut client = self.client.clone();
        cmd("PING").exec_async(&mut client).await?;
        let mut probe = cmd("XADD");
        probe
            .arg(PROBE_KEY)
            .arg("NOMKSTREAM")
            .arg("*")
            .arg("check")
            .arg("1");
        probe.exec_async(&mut client).await
    }
}
