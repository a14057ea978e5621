//! Stops the process on SIGTERM and SIGINT.
//!
//! The first signal starts a graceful shutdown: attempts in flight finish, other rows are released. A second signal exits at
//! once, and rows in flight are claimed again when their lease expires.
//!
//! A signal that is repeated within a second counts once. Ctrl-C reaches all processes of a terminal, and a parent such as
//! `cargo run` or a container's init passes it on again.

use std::time::{Duration, Instant};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;

/// The exit code of an interrupted command, as shells report it.
const INTERRUPTED: i32 = 130;
/// How long a repeated signal is the same signal.
const SAME: Duration = Duration::from_secs(1);

/// A token that the first signal cancels. The task runs as long as the process, to receive the second signal.
#[expect(clippy::disallowed_methods, reason = "the task that waits for signals")]
pub(crate) fn shutdown() -> Result<CancellationToken, Failure> {
    let mut terminate = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    let token = CancellationToken::new();
    let asked = token.clone();
    tokio::spawn(async move {
        either(&mut terminate, &mut interrupt).await;
        tracing::info!("shutting down, finishing events in flight; a second signal exits at once");
        asked.cancel();
        let first = Instant::now();
        while first.elapsed() < SAME {
            either(&mut terminate, &mut interrupt).await;
        }
        tracing::warn!("exiting at once; events in flight are retried when their lease expires");
        std::process::exit(INTERRUPTED);
    });
    Ok(token)
}

fn listen(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::failed(format!("cannot listen for signals: {error}")))
}

async fn either(one: &mut Signal, other: &mut Signal) {
    tokio::select! {
        _ = one.recv() => {}
        _ = other.recv() => {}
    }
}
