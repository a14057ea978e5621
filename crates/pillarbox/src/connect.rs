//! Gets a connection from a PostgreSQL pool, and reports the root cause if there is none.
//!
//! sqlx keeps trying until its acquire timeout when the server refuses connections, is starting, or has too many clients. Then
//! it reports only that the pool timed out. So if a connection takes long, the server is asked directly beside the pool, and
//! its answer is the error.
//!
//! Error texts name the address and never the password.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sqlx::pool::PoolConnection;
use sqlx::{ConnectOptions, Connection, PgPool, Postgres};
use tokio::time::timeout;

use crate::error::StoreError;
use crate::schema::error_of;

/// How long the pool may take before the server is asked directly, at most half of the acquire timeout. A new connection
/// takes some milliseconds, with TLS and a distant server some hundred.
const PROBE_AFTER: Duration = Duration::from_millis(500);
/// How long a direct connection may take after the pool has timed out.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// PostgreSQL has no free slot (`too_many_connections`). It may have one soon.
const TOO_MANY_CONNECTIONS: &str = "53300";

/// Acquires a connection. Fails within about a second if the server is unreachable, and after the pool's acquire timeout if
/// the server is silent or all connections stay in use.
///
/// # Errors
/// With the root cause, such as `connection refused (127.0.0.1:5432)`.
pub async fn acquire(pool: &PgPool) -> Result<PoolConnection<Postgres>, StoreError> {
    // On the heap: a future of several kilobytes would grow every caller.
    let mut acquiring = Box::pin(pool.acquire());
    let acquire_timeout = pool.options().get_acquire_timeout();
    let no_connection = |error: sqlx::Error| match error {
        sqlx::Error::PoolTimedOut => silent(pool, acquire_timeout),
        other => connect_error(pool, &other),
    };
    // Before the pool times out, because that error has no cause.
    if let Ok(acquired) = timeout(PROBE_AFTER.min(acquire_timeout / 2), &mut acquiring).await {
        return acquired.map_err(no_connection);
    }
    let probed = tokio::select! {
        biased;
        acquired = &mut acquiring => return acquired.map_err(no_connection),
        probed = Box::pin(probe(pool)) => probed,
    };
    // A connection of the pool that is in use may become free, so a full server is not the last word.
    if let Err(error) = &probed
        && code(error).is_none_or(|code| code != TOO_MANY_CONNECTIONS)
    {
        return Err(connect_error(pool, error));
    }
    acquiring.await.map_err(|error| match (error, probed) {
        (sqlx::Error::PoolTimedOut, Err(cause)) => connect_error(pool, &cause),
        (sqlx::Error::PoolTimedOut, Ok(())) => all_in_use(pool),
        (other, _) => connect_error(pool, &other),
    })
}

/// The root cause of an error of this pool. Asks the server directly if the pool timed out.
pub async fn root_cause(pool: &PgPool, error: &sqlx::Error) -> StoreError {
    if !matches!(error, sqlx::Error::PoolTimedOut) {
        return connect_error(pool, error);
    }
    match timeout(PROBE_TIMEOUT, Box::pin(probe(pool))).await {
        Ok(Ok(())) => all_in_use(pool),
        Ok(Err(cause)) => connect_error(pool, &cause),
        Err(_) => silent(pool, PROBE_TIMEOUT),
    }
}

/// What a direct connection of a pool ended with, and when.
type Probe = tokio::sync::Mutex<Option<(Instant, Result<(), Arc<sqlx::Error>>)>>;

/// The running probes, by the address of their pool's options.
static PROBES: LazyLock<Mutex<HashMap<usize, Arc<Probe>>>> = LazyLock::new(Mutex::default);

/// Opens a connection beside the pool and closes it. Callers that wait together share one: a server that is busy must not
/// get a connection more from each of them.
async fn probe(pool: &PgPool) -> Result<(), Arc<sqlx::Error>> {
    let asked = Instant::now();
    let probe = probe_of(pool);
    let mut last = probe.lock().await;
    if let Some((ended, answer)) = &*last
        && *ended >= asked
    {
        return answer.clone();
    }
    let answer = connect_once(pool).await.map_err(Arc::new);
    *last = Some((Instant::now(), answer.clone()));
    answer
}

fn probe_of(pool: &PgPool) -> Arc<Probe> {
    let mut probes = PROBES.lock().unwrap_or_else(PoisonError::into_inner);
    // No caller waits for the others any more.
    probes.retain(|_, probe| Arc::strong_count(probe) > 1);
    let options = Arc::as_ptr(&pool.connect_options()).addr();
    Arc::clone(probes.entry(options).or_default())
}

async fn connect_once(pool: &PgPool) -> Result<(), sqlx::Error> {
    let connection = pool.connect_options().connect().await?;
    connection.close().await
}

fn connect_error(pool: &PgPool, error: &sqlx::Error) -> StoreError {
    let reason = match error {
        sqlx::Error::Database(answer) => {
            return error_of(&answer.code().unwrap_or_default(), answer.message());
        }
        sqlx::Error::Io(error) => io_text(error),
        sqlx::Error::Tls(error) => format!("TLS failed: {error}"),
        other => other.to_string(),
    };
    StoreError::Unavailable(format!("{reason} ({})", address(pool)))
}

fn silent(pool: &PgPool, after: Duration) -> StoreError {
    StoreError::Unavailable(format!("no answer within {after:?} ({})", address(pool)))
}

fn all_in_use(pool: &PgPool) -> StoreError {
    let most = pool.options().get_max_connections();
    StoreError::Unavailable(format!(
        "all {most} connections of the pool are in use ({})",
        address(pool)
    ))
}

/// The error as other programs print it: `connection refused` for `Connection refused (os error 111)`.
fn io_text(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_lowercase().chain(letters).collect(),
        None => error.kind().to_string(),
    }
}

fn code(error: &sqlx::Error) -> Option<String> {
    Some(error.as_database_error()?.code()?.into_owned())
}

/// `host:port`, or the path of the socket.
fn address(pool: &PgPool) -> String {
    let options = pool.connect_options();
    match options.get_socket() {
        Some(socket) => socket.display().to_string(),
        None => format!("{}:{}", options.get_host(), options.get_port()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::time::Instant;

    use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgSslMode};

    use super::*;

    fn options(port: u16) -> PgConnectOptions {
        PgConnectOptions::new_without_pgpass()
            .host("127.0.0.1")
            .port(port)
            .username("u")
            .password("hunter2")
    }

    fn pool(port: u16, acquire_timeout: Duration) -> PgPool {
        PgPoolOptions::new()
            .acquire_timeout(acquire_timeout)
            .connect_lazy_with(options(port))
    }

    /// A port on which no server listens.
    fn unused_port() -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    }

    #[tokio::test]
    async fn a_refused_connection_is_reported_within_two_seconds() {
        let port = unused_port();
        let pool = pool(port, Duration::from_secs(10));
        let started = Instant::now();
        let error = acquire(&pool).await.unwrap_err().to_string();
        assert!(started.elapsed() < Duration::from_secs(2));
        let expected = format!(": connection refused (127.0.0.1:{port})");
        assert!(error.ends_with(&expected), "{error}");
        let error = root_cause(&pool, &sqlx::Error::PoolTimedOut).await.to_string();
        assert!(error.ends_with(&expected), "{error}");
    }

    #[tokio::test]
    async fn a_short_acquire_timeout_keeps_the_cause() {
        let pool = pool(unused_port(), Duration::from_millis(200));
        let error = acquire(&pool).await.unwrap_err().to_string();
        assert!(error.contains(": connection refused (127.0.0.1:"), "{error}");
    }

    #[tokio::test]
    async fn a_silent_server_is_reported_as_silent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        for (acquire_timeout, expected) in [(1000, "1s"), (200, "200ms")] {
            let pool = pool(port, Duration::from_millis(acquire_timeout));
            let error = acquire(&pool).await.unwrap_err().to_string();
            let expected = format!(": no answer within {expected} (127.0.0.1:{port})");
            assert!(error.ends_with(&expected), "{error}");
        }
    }

    #[tokio::test]
    async fn a_server_without_tls_is_reported_as_such() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        // `N` is the answer to a request for TLS.
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let mut request = [0; 8];
                if stream.read_exact(&mut request).is_ok() {
                    stream.write_all(b"N").unwrap();
                }
            }
        });
        let options = options(port).ssl_mode(PgSslMode::Require);
        let pool = PgPoolOptions::new().connect_lazy_with(options);
        let error = acquire(&pool).await.unwrap_err().to_string();
        let expected = format!(": TLS failed: server does not support TLS (127.0.0.1:{port})");
        assert!(error.ends_with(&expected), "{error}");
    }

    #[tokio::test]
    async fn callers_that_wait_together_share_one_direct_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let pool = pool(listener.local_addr().unwrap().port(), Duration::from_secs(1));
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..40 {
            let pool = pool.clone();
            waiting.spawn(async move { acquire(&pool).await.map(drop) });
        }
        assert!(waiting.join_all().await.iter().all(Result::is_err));
        listener.set_nonblocking(true).unwrap();
        let opened = std::iter::from_fn(|| listener.accept().ok()).count();
        let most = usize::try_from(pool.options().get_max_connections()).unwrap() + 1;
        assert!(opened <= most, "{opened} connections");
    }

    #[tokio::test]
    async fn an_unknown_host_is_reported_with_its_name() {
        let pool = PgPoolOptions::new()
            .connect_lazy("postgres://u:hunter2@no-such-host.invalid/d")
            .unwrap();
        let error = acquire(&pool).await.unwrap_err().to_string();
        assert!(error.contains("failed to lookup address"), "{error}");
        assert!(error.ends_with("(no-such-host.invalid:5432)"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}
