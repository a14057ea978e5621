//! Where everything is: the database, the broker, and what queues are called.

use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use pillarbox_consume::rabbitmq::Config;
use pillarbox_store::stores::postgres::{Options, Postgres};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::Result;
use crate::services::Service;

/// How many events a service handles at once.
pub(crate) const CONCURRENCY: usize = 4;
/// As many connections as handlers, one for the consumer itself, and one for the fault switch.
const CONNECTIONS: u32 = 6;

const TABLES: &str = include_str!("tables.sql");

/// Where everything is, and how patient everybody is.
#[derive(Debug, Clone, Args)]
pub(crate) struct Places {
    /// The PostgreSQL database of all services
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub(crate) database: String,
    /// The RabbitMQ between them
    #[arg(long, env = "AMQP_URL", hide_env_values = true)]
    pub(crate) amqp: String,
    /// What the exchange and the queues are called begins with this
    #[arg(long, env = "SHOP_PREFIX", default_value = "shop")]
    pub(crate) prefix: String,
    /// How long the saga waits for the answer of a service
    #[arg(long, env = "SHOP_PATIENCE", default_value = "5s")]
    patience: humantime::Duration,
    /// How long it takes until a killed dispatcher is missed
    #[arg(long, env = "SHOP_LEASE", default_value = "6s")]
    lease: humantime::Duration,
}

impl Places {
    pub(crate) fn patience(&self) -> Duration {
        *self.patience
    }

    pub(crate) fn lease(&self) -> Duration {
        *self.lease
    }

    /// The same for another process of this program.
    pub(crate) fn environment(&self) -> [(&'static str, String); 5] {
        [
            ("DATABASE_URL", self.database.clone()),
            ("AMQP_URL", self.amqp.clone()),
            ("SHOP_PREFIX", self.prefix.clone()),
            ("SHOP_PATIENCE", self.patience.to_string()),
            ("SHOP_LEASE", self.lease.to_string()),
        ]
    }

    /// Connections for a service. Opened when they are needed, so that a database that is away is waited for.
    pub(crate) fn pool(&self) -> Result<PgPool> {
        let options = PgConnectOptions::from_str(&self.database)?.application_name("shop");
        Ok(PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .connect_lazy_with(options))
    }

    pub(crate) fn store(&self) -> Result<Postgres> {
        Ok(Postgres::new(&self.database, Options::default())?)
    }

    /// The outbox with its inbox and sagas, and the tables of the services.
    pub(crate) async fn migrate(&self) -> Result<()> {
        // As patient as the pool is: here nobody asks again, as a dispatcher does, if the database is slow to answer.
        let options = Options {
            timeout: Duration::from_secs(90),
            ..Options::default()
        };
        let store = Postgres::new(&self.database, options)?;
        store.migrate().await?;
        store.close().await;
        let pool = self.pool()?;
        sqlx::raw_sql(TABLES).execute(&pool).await?;
        pool.close().await;
        Ok(())
    }

    pub(crate) fn exchange(&self) -> String {
        format!("{}.events", self.prefix)
    }

    /// The queue of a service, with everything on its topic in it.
    pub(crate) fn queue(&self, service: Service, topic: &str) -> Config {
        Config::new(self.amqp.as_str(), self.queue_name(service)).bind(self.exchange(), topic)
    }

    pub(crate) fn queue_name(&self, service: Service) -> String {
        format!("{}.{service}", self.prefix)
    }
}
