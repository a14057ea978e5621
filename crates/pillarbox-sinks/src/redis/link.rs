//! The connection and what is done on it.
//!
//! **If we die here** what was in flight is uncertain, and comes again.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, PushInfo, PushKind, RedisResult, cmd};
use tokio::time::timeout;

use super::classify;
use super::settings::Settings;
use crate::slot;

/// A key that nobody has. `check` asks for it to be added to, which adds nothing because it is not there.
const NOBODY: &str = "pillarbox:check";

/// The connection that is there, being opened, or not there.
pub(super) type Links = slot::Links<Link>;

/// An open connection.
pub(super) struct Link {
    connection: MultiplexedConnection,
    lost: Arc<AtomicBool>,
}

impl slot::Connection for Link {
    fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }
}

impl slot::Open for Link {
    type Settings = Settings;

    async fn open(settings: Arc<Settings>) -> Result<Self, String> {
        match timeout(settings.connect_timeout, connect(&settings)).await {
            Ok(result) => result,
            Err(_) => Err(format!(
                "Redis at {} did not answer within {:?}",
                settings.place, settings.connect_timeout
            )),
        }
    }
}

async fn connect(settings: &Settings) -> Result<Link, String> {
    let lost = Arc::new(AtomicBool::new(false));
    let flag = lost.clone();
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None) // ours covers all of it
        .set_response_timeout(None) // the dispatcher decides how long an attempt may take
        .set_push_sender(move |pushed: PushInfo| {
            if pushed.kind == PushKind::Disconnection {
                flag.store(true, Ordering::Release);
            }
            Ok::<(), Infallible>(())
        });
    let connected = settings
        .client
        .get_multiplexed_async_connection_with_config(&config);
    let connection = connected
        .await
        .map_err(|error| classify::not_connected(&error, &settings.place))?;
    Ok(Link { connection, lost })
}

impl Link {
    /// Adds an entry; the answer is its id. May be dropped: what has not been written yet is never sent.
    pub(super) async fn add(&self, entry: &Cmd) -> RedisResult<String> {
        entry.query_async(&mut self.connection.clone()).await
    }

    /// Is it there, and would it take an entry?
    pub(super) async fn look(&self) -> RedisResult<()> {
        let mut connection = self.connection.clone();
        cmd("PING").exec_async(&mut connection).await?;
        let mut probe = cmd("XADD");
        probe.arg(NOBODY).arg("NOMKSTREAM").arg("*").arg("check").arg("1");
        probe.exec_async(&mut connection).await
    }
}
