//! Where `pillarbox bench` measures: a schema of its own, or a temporary file.

use std::sync::Arc;

use pillarbox::Sink;
use pillarbox_dispatch::{Counters, Destination, Dispatcher, Route, Snapshot};
use pillarbox_store::Actor;
use pillarbox_store::actor::{Kind, Reach};
use pillarbox_store::stores::postgres::Postgres;
use sqlx::AssertSqlSafe;
use tempfile::TempDir;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::config;
use crate::database::{Database, DatabaseUrl, IfMissing};
use crate::failure::Failure;
use crate::logs;

/// Connections of the dispatcher and of the producer.
const CONNECTIONS: u32 = 8;
/// Attempts at a time: that of a broker's sink, so that only the engine limits the rate.
const CONCURRENCY: usize = 1024;

/// An empty outbox that nothing else uses.
pub(super) struct Scratch {
    pub(super) database: Database,
    url: DatabaseUrl,
    schema: String,
    /// The dispatcher, while it runs. It is stopped before the outbox is removed.
    running: Mutex<Option<Running>>,
    _folder: Option<TempDir>,
}

struct Running {
    shutdown: CancellationToken,
    task: JoinHandle<Snapshot>,
}

impl Scratch {
    pub(super) async fn create(chosen: Option<config::Database>) -> Result<Self, Failure> {
        let schema = format!("pillarbox_bench_{}", Uuid::new_v4().simple());
        let (url, folder) = match chosen.map(|chosen| chosen.url) {
            Some(url @ DatabaseUrl::Postgres(_)) => (url, None),
            Some(DatabaseUrl::Sqlite(_)) | None => {
                let folder = tempfile::Builder::new()
                    .prefix("pillarbox-bench-")
                    .tempdir()
                    .map_err(|error| Failure::failed(format!("cannot create a temporary folder: {error}")))?;
                (DatabaseUrl::Sqlite(folder.path().join("bench.db")), Some(folder))
            }
        };
        let config = config::Database {
            name: "bench".to_owned(),
            url: url.clone(),
            schema: schema.clone(),
            max_connections: CONNECTIONS,
        };
        let database = Database::open(&config, IfMissing::Create).await?;
        let place = match &url {
            DatabaseUrl::Postgres(_) => format!("{url}, schema {schema}"),
            DatabaseUrl::Sqlite(_) => url.to_string(),
        };
        logs::progress(&format!("measuring in {place}"));
        let scratch = Self {
            database,
            url,
            schema,
            running: Mutex::default(),
            _folder: folder,
        };
        let program = Actor::new(Kind::Service, "pillarbox bench", Reach::System, []);
        if let Err(error) = scratch.database.migrate(&program).await {
            // The migration may have created the schema before it failed.
            scratch.remove().await.ok();
            return Err(error.into());
        }
        Ok(scratch)
    }

    /// The database, without its password.
    pub(super) fn name(&self) -> String {
        self.url.to_string()
    }

    /// Starts a dispatcher that sends everything to this sink.
    #[expect(
        clippy::disallowed_methods,
        reason = "the task of the dispatcher, owned by `running`"
    )]
    pub(super) async fn start(&self, sink: Arc<dyn Sink>) -> Result<Arc<Counters>, Failure> {
        let dispatcher = Dispatcher::builder(self.database.store())
            .route(Route::to("bench"))
            .destination(Destination::shared("bench", sink).concurrency(CONCURRENCY))
            .build()
            .map_err(|error| Failure::failed(error.to_string()))?;
        let counters = dispatcher.counters();
        let shutdown = CancellationToken::new();
        *self.running.lock().await = Some(Running {
            task: tokio::spawn(dispatcher.run(shutdown.clone())),
            shutdown,
        });
        Ok(counters)
    }

    /// Stops the dispatcher, if one runs.
    pub(super) async fn stop(&self) -> Result<(), Failure> {
        let Some(Running { shutdown, task }) = self.running.lock().await.take() else {
            return Ok(());
        };
        shutdown.cancel();
        task.await
            .map_err(|error| Failure::failed(format!("dispatcher failed: {error}")))?;
        Ok(())
    }

    pub(super) async fn remove(self) -> Result<(), Failure> {
        let stopped = self.stop().await;
        match &self.database {
            Database::Postgres(store) => drop_schema(store, &self.schema).await?,
            // The folder is removed with the value.
            Database::Sqlite { .. } => {}
        }
        stopped
    }
}

/// The name of the schema is ours: letters, digits and underscores.
async fn drop_schema(store: &Postgres, schema: &str) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::failed(format!(
            "cannot remove the schema {schema}: {error} (run `drop schema {schema} cascade`)"
        ))
    };
    let mut connection = store.connection().await.map_err(|error| failed(&error))?;
    sqlx::raw_sql(AssertSqlSafe(format!("drop schema if exists {schema} cascade")))
        .execute(&mut *connection)
        .await
        .map_err(|error| failed(&error))?;
    Ok(())
}
