//! Serves connections within limits, so that clients cannot take the sockets that the dispatcher needs.
//!
//! **If we die here** deliveries are not affected.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

/// The limits of one listener.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// How many connections are open at once.
    pub(super) connections: usize,
    /// What happens to further ones.
    pub(super) when_full: WhenFull,
    /// How long the headers of a request may take, also of the next one on an idle connection.
    pub(super) headers: Duration,
    /// How long a connection may last.
    pub(super) connection: Duration,
    /// How many bytes the headers may have.
    pub(super) buffer: usize,
}

/// What happens to a connection when so many are open already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WhenFull {
    /// It waits until another one ends: answers may take long.
    Wait,
    /// The oldest one ends for it. An answer to a probe takes a moment, so the oldest are those that send nothing. A client that
    /// opens as many as it can delays no probe of others.
    EndOldest,
}

impl Limits {
    /// For probes.
    pub(super) fn of_probes() -> Self {
        Self {
            connections: 64,
            when_full: WhenFull::EndOldest,
            ..Self::default()
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 256,
            when_full: WhenFull::Wait,
            headers: Duration::from_secs(10),
            // A slow reader ends with it; other clients connect again.
            connection: Duration::from_secs(300),
            buffer: 16 * 1024,
        }
    }
}

/// Wait after an error such as too many open files.
const ERROR_WAIT: Duration = Duration::from_secs(1);

/// Serves until `stop`, then waits for the open requests.
#[expect(clippy::disallowed_methods, reason = "the wait after a socket error")]
pub(super) async fn serve(listener: TcpListener, router: Router, limits: Limits, stop: CancellationToken) {
    let mut open = Open::new(limits);
    let mut connections = JoinSet::new();
    loop {
        let permit = tokio::select! {
            permit = open.permit() => permit,
            () = stop.cancelled() => break,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        match accepted {
            Ok((stream, _)) => {
                let connection = connection(stream, router.clone(), limits, stop.clone());
                let served = connections.spawn(async move {
                    // A connection that lasts too long is cut off.
                    tokio::time::timeout(limits.connection, connection).await.ok();
                    drop(permit);
                });
                open.add(served);
            }
            Err(error) => {
                tracing::warn!(%error, "HTTP connection not accepted");
                tokio::time::sleep(ERROR_WAIT).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
    while connections.join_next().await.is_some() {}
}

/// The open connections, the oldest first.
struct Open {
    limits: Limits,
    free: Arc<Semaphore>,
    oldest: VecDeque<AbortHandle>,
}

impl Open {
    fn new(limits: Limits) -> Self {
        Self {
            limits,
            free: Arc::new(Semaphore::new(limits.connections)),
            oldest: VecDeque::new(),
        }
    }

    /// Waits until there may be one more, if it has to.
    async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        match self.limits.when_full {
            WhenFull::Wait => self.free.clone().acquire_owned().await.ok(),
            WhenFull::EndOldest => None,
        }
    }

    fn add(&mut self, served: AbortHandle) {
        if self.limits.when_full == WhenFull::Wait {
            return;
        }
        self.oldest.retain(|connection| !connection.is_finished());
        if self.oldest.len() >= self.limits.connections
            && let Some(oldest) = self.oldest.pop_front()
        {
            oldest.abort();
        }
        self.oldest.push_back(served);
    }
}

async fn connection(stream: TcpStream, router: Router, limits: Limits, stop: CancellationToken) {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.headers)
        .max_buf_size(limits.buffer);
    let service = TowerToHyperService::new(router);
    let mut serving = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = stop.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "HTTP connection ended");
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const SHORT: Limits = Limits {
        connections: 2,
        when_full: WhenFull::Wait,
        headers: Duration::from_millis(200),
        connection: Duration::from_secs(60),
        buffer: 8 * 1024,
    };

    /// A server that answers, and the means to stop it.
    async fn start(limits: Limits) -> (std::net::SocketAddr, CancellationToken) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let router = Router::new().route("/", get(async || "fine"));
        let serving = serve(listener, router, limits, stop.clone());
        JoinSet::spawn(Box::leak(Box::new(JoinSet::new())), serving);
        (address, stop)
    }

    async fn send(address: std::net::SocketAddr, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    /// All that the server sends until it closes the connection.
    async fn rest(mut stream: TcpStream) -> String {
        let mut text = String::new();
        // A reset is an end too.
        stream.read_to_string(&mut text).await.ok();
        text
    }

    const GET: &str = "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";

    #[tokio::test]
    async fn slow_headers_and_idle_connections_are_cut_off_and_make_room() {
        let (address, stop) = start(SHORT).await;
        let slow = send(address, "GET / HTTP/1.1\r\nhost: local").await;
        let idle = send(address, GET).await;
        let silent = send(address, "").await;
        // It is the fourth of two: it is served when the others are cut off.
        let late = send(address, &GET.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n")).await;
        assert!(rest(late).await.ends_with("fine"));
        assert!(rest(idle).await.ends_with("fine"));
        assert!(!rest(slow).await.contains("fine"));
        assert_eq!(rest(silent).await, "");
        stop.cancel();
    }

    #[tokio::test]
    async fn a_client_that_takes_all_connections_delays_no_probe() {
        let limits = Limits {
            headers: Duration::from_secs(600),
            when_full: WhenFull::EndOldest,
            ..SHORT
        };
        let (address, stop) = start(limits).await;
        let silent = [
            send(address, "").await,
            send(address, "").await,
            send(address, "").await,
        ];
        let probe = send(address, &GET.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n")).await;
        assert!(rest(probe).await.ends_with("fine"));
        let [first, second, _third] = silent;
        assert_eq!(
            (rest(first).await, rest(second).await),
            (String::new(), String::new())
        );
        stop.cancel();
    }

    #[tokio::test]
    async fn headers_beyond_the_limit_are_refused() {
        let (address, stop) = start(SHORT).await;
        let large = format!(
            "GET / HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n",
            "x".repeat(9 * 1024)
        );
        let answer = rest(send(address, &large).await).await;
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
        stop.cancel();
    }

    #[tokio::test]
    async fn a_connection_that_lasts_too_long_is_cut_off() {
        let limits = Limits {
            headers: Duration::from_secs(60),
            connection: Duration::from_millis(200),
            ..SHORT
        };
        let (address, stop) = start(limits).await;
        let idle = send(address, GET).await;
        assert!(rest(idle).await.ends_with("fine"));
        stop.cancel();
    }
}
