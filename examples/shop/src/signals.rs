//! How a process is asked to stop: SIGINT, SIGTERM, or the end of its parent process.

use tokio::io::AsyncReadExt;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::Result;

/// A token that is cancelled when the process is asked to stop. The task that listens lives as long as the process.
pub(crate) fn shutdown(until_stdin_ends: bool) -> Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let token = CancellationToken::new();
    let asked = token.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = end_of_stdin(), if until_stdin_ends => {}
        }
        asked.cancel();
    });
    Ok(token)
}

async fn end_of_stdin() {
    let mut ignored = [0; 64];
    let mut stdin = tokio::io::stdin();
    while stdin.read(&mut ignored).await.is_ok_and(|bytes| bytes > 0) {}
}
