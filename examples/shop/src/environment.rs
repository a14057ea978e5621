//! The environment of every process: the database, the broker, the names of queues, and timeouts.

use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use pillarbox_consume::rabbitmq::Config;
use pillarbox_store::stores::postgres::{Options, Postgres};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::services::Service;
use crate::{Result, roles};

/// The number of events that a service handles at once.
pub(crate) const CONCURRENCY: usize = 4;
/// One connection per handler, one for the consumer itself, and one for the fault switch.
const CONNECTIONS: u32 = 6;

const TABLES: &str = include_str!("tables.sql");

/// Connection settings and timeouts, shared by all processes.
#[derive(Debug, Clone, Args)]
pub(crate) struct Environment {
    /// PostgreSQL database of all services, as its owner
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub(crate) database: String,
    /// RabbitMQ between them
    #[arg(long, env = "AMQP_URL", hide_env_values = true)]
    pub(crate) amqp: String,
    /// Prefix of the exchange, the queues and the database roles
    #[arg(long, env = "SHOP_PREFIX", default_value = "shop")]
    pub(crate) prefix: String,
    /// How long the saga waits for the reply of a service
    #[arg(long, env = "SHOP_STEP_TIMEOUT", default_value = "5s")]
    step_timeout: humantime::Duration,
    /// The dispatcher's lease: how long rows of a killed dispatcher wait
    #[arg(long, env = "SHOP_LEASE", default_value = "6s")]
    lease: humantime::Duration,
}

impl Environment {
    pub(crate) fn step_timeout(&self) -> Duration {
        *self.step_timeout
    }

    pub(crate) fn lease(&self) -> Duration {
        *self.lease
    }

    /// Variables that give another process the same environment.
    pub(crate) fn variables(&self) -> [(&'static str, String); 5] {
        [
            ("DATABASE_URL", self.database.clone()),
            ("AMQP_URL", self.amqp.clone()),
            ("SHOP_PREFIX", self.prefix.clone()),
            ("SHOP_STEP_TIMEOUT", self.step_timeout.to_string()),
            ("SHOP_LEASE", self.lease.to_string()),
        ]
    }

    /// The connections of a service. They are opened on first use, so a service can start while the database is unavailable.
    pub(crate) fn pool(&self) -> Result<PgPool> {
        let options = PgConnectOptions::from_str(&self.database)?.application_name("shop");
        Ok(PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .connect_lazy_with(options))
    }

    pub(crate) fn store(&self) -> Result<Postgres> {
        Ok(Postgres::new(&self.database, Options::default())?)
    }

    /// The database role of a process.
    pub(crate) fn role(&self, who: &str) -> String {
        format!("{}_{who}", self.prefix)
    }

    /// The same with the login of a process, which has the password of the owner if there is one.
    pub(crate) fn log_in_as(&self, who: &str) -> Self {
        Self {
            database: with_user(&self.database, &self.role(who)),
            ..self.clone()
        }
    }

    /// Creates the outbox, the inbox, the tables of sagas, the tables of the services, and the roles.
    pub(crate) async fn migrate(&self) -> Result<()> {
        // A dispatcher would retry; this command does not. So it waits longer for a slow database.
        let options = Options {
            timeout: Duration::from_secs(90),
            ..Options::default()
        };
        let store = Postgres::new(&self.database, options)?;
        store.migrate().await?;
        let pool = self.pool()?;
        sqlx::raw_sql(TABLES).execute(&pool).await?;
        roles::create(self, &store, &pool).await?;
        store.close().await;
        pool.close().await;
        Ok(())
    }

    pub(crate) fn exchange(&self) -> String {
        format!("{}.events", self.prefix)
    }

    /// The queue of a service, bound to its topic.
    pub(crate) fn queue(&self, service: Service, topic: &str) -> Config {
        Config::new(self.amqp.as_str(), self.queue_name(service)).bind(self.exchange(), topic)
    }

    pub(crate) fn queue_name(&self, service: Service) -> String {
        format!("{}.{service}", self.prefix)
    }
}

/// The URL with another user.
fn with_user(url: &str, user: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    match authority.rsplit_once('@') {
        None => format!("{scheme}://{user}@{authority}{rest}"),
        Some((login, host)) => {
            let password = login.split_once(':').map(|(_, password)| format!(":{password}"));
            format!("{scheme}://{user}{}@{host}{rest}", password.unwrap_or_default())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::with_user;

    #[test]
    fn a_process_logs_in_with_its_own_role() {
        for (url, expected) in [
            (
                "postgres://a:b%40@h:1/d?x=y@z",
                "postgres://shop_stock:b%40@h:1/d?x=y@z",
            ),
            ("postgres://a@h/d", "postgres://shop_stock@h/d"),
            ("postgres://h/d", "postgres://shop_stock@h/d"),
        ] {
            assert_eq!(with_user(url, "shop_stock"), expected);
        }
    }
}
