//! Serves connections within limits, so that clients cannot take the sockets that the dispatcher needs.
//!
//! **If we die here** deliveries are not affected.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The limits of one listener.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// How many connections are open at once. Further ones wait.
    pub(super) connections: usize,
    /// How long the headers of a request may take, also of the next one on an idle connection.
    pub(super) headers: Duration,
    /// How long a connection may last.
    pub(super) connection: Duration,
    /// How many bytes the headers may have.
    pub(super) buffer: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 256,
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
    let free = Arc::new(Semaphore::new(limits.connections));
    let mut connections = JoinSet::new();
    loop {
        let permit = tokio::select! {
            permit = free.clone().acquire_owned() => permit,
            () = stop.cancelled() => break,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        match accepted {
            Ok((stream, _)) => {
                let connection = connection(stream, router.clone(), limits, stop.clone());
                connections.spawn(async move {
                    // A connection that lasts too long is cut off.
                    tokio::time::timeout(limits.connection, connection).await.ok();
                    drop(permit);
                });
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
