//! How the process is asked to stop.
//!
//! The first SIGTERM or SIGINT asks: what is in flight is finished, the rest is given back. The second
//! one insists: the process is gone at once, and what it held comes back when its lease ends.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;

/// What a shell reports for a command that was interrupted.
const INTERRUPTED: i32 = 130;

/// A token that the first signal cancels. The listening task lives as long as the process: whoever
/// stops listening cannot be insisted upon.
#[expect(clippy::disallowed_methods, reason = "the task that waits for signals")]
pub(crate) fn shutdown() -> Result<CancellationToken, Failure> {
    let mut terminate = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    let token = CancellationToken::new();
    let asked = token.clone();
    tokio::spawn(async move {
        either(&mut terminate, &mut interrupt).await;
        tracing::info!("stopping: finishing what is in flight; a second signal exits at once");
        asked.cancel();
        either(&mut terminate, &mut interrupt).await;
        tracing::warn!("exiting at once; what was in flight comes back when its lease ends");
        std::process::exit(INTERRUPTED);
    });
    Ok(token)
}

fn listen(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::failed(format!("signals cannot be listened to: {error}")))
}

async fn either(one: &mut Signal, other: &mut Signal) {
    tokio::select! {
        _ = one.recv() => {}
        _ = other.recv() => {}
    }
}
