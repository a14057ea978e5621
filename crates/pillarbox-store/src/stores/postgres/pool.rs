//! Connections: two pools, timeouts, and how every transaction begins.
//!
//! **If we die here** PostgreSQL ends our transactions after the timeout, even if the network does not report it.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use pillarbox::internal::acquire;
use sqlx::postgres::{PgPool, PgPoolOptions, PgSslMode};
use sqlx::{AssertSqlSafe, PgConnection, Row, SqlSafeStr};
use uuid::Uuid;

use super::sql::Statement;
use super::url::{Url, word};
use super::{Connection, Inner, Options, Postgres, Transaction, denied, nodelay, store_error};
use crate::store::StoreError;

impl Postgres {
    /// Runs an operation within the timeout. After a timeout the pool is replaced, because a dead connection would keep its
    /// place in the pool until TCP gives up.
    pub(super) async fn run<T, F>(&self, operation: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let limit = self.inner.options.timeout;
        let result = tokio::time::timeout(limit, run_to_end(operation)).await;
        let result = result.unwrap_or_else(|_| Err(self.timed_out(limit)));
        if result.as_ref().is_err_and(is_read_only) {
            // It was the primary once. The pool would keep these connections for half an hour.
            self.inner.replace_pool();
        }
        match result {
            Err(StoreError::Denied(refused)) if denied::is_unexplained(&refused) => {
                let inner = Arc::clone(&self.inner);
                let explained = run_to_end(async { Ok(denied::explain(inner, refused).await) });
                Err(explained.await.unwrap_or_else(|error| error))
            }
            result => result,
        }
    }

    /// Runs an operation that may take longer, such as creating an index, for as long as the database answers on another
    /// connection.
    pub(super) async fn run_long<T, F>(&self, operation: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let limit = self.inner.options.timeout;
        let mut operation = pin!(run_to_end(operation));
        loop {
            if let Ok(result) = tokio::time::timeout(limit, &mut operation).await {
                return result;
            }
            if tokio::time::timeout(limit, self.inner.answers()).await.is_err() {
                return Err(self.timed_out(limit));
            }
        }
    }

    fn timed_out(&self, limit: Duration) -> StoreError {
        self.inner.replace_pool();
        StoreError::Unavailable(format!("no answer within {limit:?}"))
    }
}

impl Inner {
    pub(super) fn pool(&self) -> PgPool {
        self.pool.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn apart(&self) -> PgPool {
        self.apart.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until the database answers.
    #[expect(clippy::disallowed_methods, reason = "the wait between two probes")]
    async fn answers(&self) {
        while sqlx::raw_sql("select 1").execute(&self.apart()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn replace_pool(&self) {
        *self.pool.write().unwrap_or_else(PoisonError::into_inner) =
            open(&self.url, &self.options, &self.seen);
        *self.apart.write().unwrap_or_else(PoisonError::into_inner) =
            open_apart(&self.url, &self.options, &self.seen);
    }

    /// Begins a transaction that acts for no tenant.
    pub(super) async fn begin(&self) -> Result<Transaction, StoreError> {
        let begin = AssertSqlSafe(self.begin.clone());
        begin_on(self.connection().await?, begin).await
    }

    /// Begins a transaction for one tenant, or for none. Row-level security shows a role that is bound to a tenant its rows only.
    pub(super) async fn begin_for(&self, tenant: Option<Uuid>) -> Result<Transaction, StoreError> {
        match tenant {
            None => self.begin().await,
            Some(_) => {
                let begin = AssertSqlSafe(begin(self.options.timeout, tenant));
                begin_on(self.connection().await?, begin).await
            }
        }
    }

    /// Begins a transaction on the separate connection.
    pub(super) async fn begin_apart(&self) -> Result<Transaction, StoreError> {
        let begin = AssertSqlSafe(self.begin.clone());
        begin_on(self.connection_apart().await?, begin).await
    }

    /// Begins a transaction in another way.
    pub(super) async fn begin_with(&self, begin: impl SqlSafeStr) -> Result<Transaction, StoreError> {
        begin_on(self.connection().await?, begin).await
    }

    /// A query by the simple protocol, which the server bounds. A direct connection has the timeouts from its start. Behind a
    /// pooler they are set in the same message, which is one transaction, and end with it.
    pub(super) fn bounded(&self, statement: &Statement) -> AssertSqlSafe<String> {
        if self.seen.is_pooled() {
            let timeouts = timeouts(self.options.timeout);
            let set = timeouts.map(|(name, value)| format!("set local {name} = {value}; "));
            return AssertSqlSafe(set.concat() + statement.text());
        }
        AssertSqlSafe(statement.text().to_owned())
    }

    /// A connection for a single statement.
    pub(super) async fn connection(&self) -> Result<Connection, StoreError> {
        self.acquire(Self::pool).await
    }

    /// The separate connection.
    pub(super) async fn connection_apart(&self) -> Result<Connection, StoreError> {
        self.acquire(Self::apart).await
    }

    /// A pooler rejects connections with timeouts of their own, because it shares its own among clients.
    async fn acquire(&self, pool: fn(&Self) -> PgPool) -> Result<Connection, StoreError> {
        match acquire(&pool(self)).await {
            Err(StoreError::Unavailable(why) | StoreError::Other(why)) if is_about_options(&why) => {
                if !self.seen.is_pooled.swap(true, Ordering::Relaxed) {
                    self.replace_pool();
                }
                acquire(&pool(self)).await
            }
            acquired => acquired,
        }
    }
}

/// Does a pooler reject the options of a connection? PgBouncer and RDS Proxy have their own words for it.
pub(super) fn is_about_options(why: &str) -> bool {
    why.contains("unsupported startup parameter") || why.contains("command-line options")
}

async fn begin_on(connection: Connection, begin: impl SqlSafeStr) -> Result<Transaction, StoreError> {
    let begun = Transaction::begin(connection, Some(begin.into_sql_str())).await;
    begun.map_err(store_error)
}

/// Runs an operation to its end even if the caller is dropped. Otherwise the connection could go back to the pool inside a
/// transaction.
#[expect(
    clippy::disallowed_methods,
    reason = "a statement ends even if its caller is dropped"
)]
async fn run_to_end<T, F>(operation: F) -> Result<T, StoreError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, StoreError>> + Send + 'static,
{
    match tokio::spawn(operation).await {
        Ok(result) => result,
        Err(panic) => Err(StoreError::Other(panic.to_string())),
    }
}

/// What the connections of a store have shown so far.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Do we connect through a pooler, which shares its connections among clients?
    is_pooled: AtomicBool,
    /// Is it logged how the connections are protected?
    is_logged: AtomicBool,
}

impl Seen {
    pub(super) fn is_pooled(&self) -> bool {
        self.is_pooled.load(Ordering::Relaxed)
    }

    /// Logs once how the connections are protected.
    async fn log(&self, url: &Url, connection: &mut PgConnection) {
        if self.is_logged.swap(true, Ordering::Relaxed) {
            return;
        }
        let (encrypted, verified) = match url.tls() {
            PgSslMode::Disable | PgSslMode::Allow => (false, false),
            PgSslMode::Prefer => (self.is_encrypted(connection).await, false),
            PgSslMode::Require => (true, false),
            PgSslMode::VerifyCa | PgSslMode::VerifyFull => (true, true),
        };
        let (host, sslmode) = (url.address(), word(url.tls()));
        tracing::info!(host, sslmode, encrypted, verified, "database connected");
    }

    /// Is this connection encrypted? Behind a pooler only the pooler knows.
    async fn is_encrypted(&self, connection: &mut PgConnection) -> bool {
        if self.is_pooled() {
            return false;
        }
        let query = "select ssl::text from pg_stat_ssl where pid = pg_backend_pid()";
        let row = sqlx::raw_sql(query).fetch_optional(connection).await;
        row.is_ok_and(|row| row.is_some_and(|row| row.try_get::<String, _>(0).is_ok_and(|ssl| ssl == "true")))
    }
}

pub(super) fn open(url: &Url, options: &Options, seen: &Arc<Seen>) -> PgPool {
    open_with(options.max_connections.max(1), url, options, seen)
}

pub(super) fn open_apart(url: &Url, options: &Options, seen: &Arc<Seen>) -> PgPool {
    open_with(1, url, options, seen)
}

fn open_with(connections: u32, url: &Url, options: &Options, seen: &Arc<Seen>) -> PgPool {
    let mut connect = url.options().clone();
    if !seen.is_pooled() {
        connect = connect.options(timeouts(options.timeout));
    }
    let port = connect.get_port();
    let expected = silence(options.timeout);
    let (url, seen) = (url.clone(), Arc::clone(seen));
    PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(options.timeout / 3)
        .after_connect(move |connection, _| {
            nodelay::send_at_once(port);
            let (url, seen) = (url.clone(), Arc::clone(&seen));
            Box::pin(async move {
                // A pooler may also ignore them.
                if !seen.is_pooled() && statement_timeout(connection).await? != expected {
                    seen.is_pooled.store(true, Ordering::Relaxed);
                }
                seen.log(&url, connection).await;
                Ok(())
            })
        })
        .connect_lazy_with(connect)
}

/// The connection's timeout for a statement, in milliseconds.
async fn statement_timeout(connection: &mut PgConnection) -> Result<u128, sqlx::Error> {
    let setting = "select setting from pg_settings where name = 'statement_timeout'";
    let row = sqlx::raw_sql(setting).fetch_one(connection).await?;
    Ok(row.try_get::<String, _>(0)?.parse().unwrap_or_default())
}

/// The statement that begins a transaction. Its settings make plans independent of statistics, so that a table that was empty
/// when it was analysed is not scanned.
///
/// The timeouts make the server release the rows of a dead or suspended worker. Its connection may look alive for hours.
///
/// The tenant is always set, to nothing if there is none. So what an earlier transaction or another client of a pooler has left on
/// the connection does not count. All of these settings end with the transaction.
pub(super) fn begin(timeout: Duration, tenant: Option<Uuid>) -> String {
    let silence = silence(timeout);
    let tenant = tenant.map(|tenant| tenant.to_string()).unwrap_or_default();
    let lock = (timeout / 3).as_millis().max(1);
    // One statement for all settings, because an idle worker should send few queries.
    format!(
        "begin isolation level read committed; \
         select set_config(name, value, true) from (values \
         ('statement_timeout', '{silence}ms'), ('idle_in_transaction_session_timeout', '{silence}ms'), \
         ('lock_timeout', '{lock}ms'), ('jit', 'off'), ('enable_seqscan', 'off'), \
         ('enable_bitmapscan', 'off'), ('enable_mergejoin', 'off'), ('pillarbox.tenant', '{tenant}')) as setting (name, value)"
    )
}

/// The same for a transaction that reads one snapshot.
pub(super) fn begin_snapshot(timeout: Duration) -> String {
    begin(timeout, None).replacen("read committed", "repeatable read, read only", 1)
}

/// The server's timeouts for a statement, in milliseconds. They are shorter than the client's, so that no query runs on after
/// its client gave up.
pub(super) fn timeouts(timeout: Duration) -> [(&'static str, u128); 2] {
    [
        ("statement_timeout", silence(timeout)),
        ("lock_timeout", (timeout / 3).as_millis().max(1)),
    ]
}

/// The server's timeout for a statement, and for a silent client inside a transaction, in milliseconds.
pub(super) fn silence(timeout: Duration) -> u128 {
    (timeout * 5 / 6).as_millis().max(1)
}

/// Did a read-only server answer, such as a primary that was replaced?
fn is_read_only(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable(reason) if reason.ends_with("(25006)"))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// An error of the server: its severity, its SQLSTATE and its text.
    fn error(code: &str, text: &str) -> Vec<u8> {
        let fields = format!("SFATAL\0VFATAL\0C{code}\0M{text}\0\0");
        let len = u32::try_from(fields.len() + 4).unwrap();
        [b"E", &len.to_be_bytes()[..], fields.as_bytes()].concat()
    }

    /// Answers a client until its connection is accepted or rejected. Returns whether it is accepted.
    fn greet(client: &mut TcpStream, rejection: &[u8]) -> std::io::Result<bool> {
        loop {
            let mut len = [0; 4];
            client.read_exact(&mut len)?;
            let mut request = vec![0; usize::try_from(u32::from_be_bytes(len)).unwrap() - 4];
            client.read_exact(&mut request)?;
            if request.len() == 4 {
                client.write_all(b"N")?; // no TLS
                continue;
            }
            if request.windows(8).any(|window| window == b"options\0") {
                client.write_all(rejection)?;
                return Ok(false);
            }
            client.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I")?; // authenticated, and ready
            return Ok(true);
        }
    }

    /// The port of a pooler that rejects connections with options.
    fn pooler(rejection: Vec<u8>) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let mut accepted = Vec::new();
            for mut client in listener.incoming().map_while(Result::ok) {
                if greet(&mut client, &rejection).is_ok_and(|is_accepted| is_accepted) {
                    accepted.push(client);
                }
            }
        });
        port
    }

    #[tokio::test]
    async fn a_pooler_that_rejects_connection_options_gets_connections_without_them() {
        for (name, code, text) in [
            ("PgBouncer", "08P01", "unsupported startup parameter: options"),
            (
                "RDS Proxy",
                "0A000",
                "Feature not supported: RDS Proxy currently doesn't support command-line options.",
            ),
        ] {
            let port = pooler(error(code, text));
            let url = format!("postgres://u:p@127.0.0.1:{port}/d");
            let store = Postgres::new(&url, Options::default()).unwrap();
            let connected = store.connection().await;
            assert!(connected.is_ok(), "{name}: {connected:?}");
        }
    }
}
