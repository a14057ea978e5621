//! The fault switch: a row in `shop.faults` for each service that misbehaves. Looked at for every command, so that it works at
//! once, on whatever process.

use std::fmt;

use clap::ValueEnum;
use pillarbox::saga::{Action, Command};
use sqlx::{PgExecutor, PgPool, PgTransaction};

use crate::Result;
use crate::places::Places;
use crate::services::Service;

/// How a service misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Not at all
    Off,
    /// Commands are refused, for good; compensations are carried out
    Refuse,
    /// Commands and compensations fail, as long as the switch stays so
    Fail,
    /// The first attempt at every command fails
    Flaky,
    /// Commands are carried out, and answered when nobody waits any more
    Slow,
    /// The process ends in the middle of the next command, once
    Crash,
    /// Everything is published twice; of the dispatcher only
    Twice,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::Refuse => "refuse",
            Self::Fail => "fail",
            Self::Flaky => "flaky",
            Self::Slow => "slow",
            Self::Crash => "crash",
            Self::Twice => "twice",
        })
    }
}

/// Turns the switch.
pub(crate) async fn set(places: &Places, service: Service, mode: Mode) -> Result<()> {
    if !fits(service, mode) {
        return Err(format!("`{mode}` is nothing that {service} can do; see `shop fault --help`").into());
    }
    let pool = places.pool()?;
    sqlx::query(
        "insert into shop.faults (service, mode) values ($1, $2) on conflict (service) do update set mode = excluded.mode",
    )
    .bind(service.to_string())
    .bind(mode.to_string())
    .execute(&pool)
    .await?;
    pool.close().await;
    println!("{service}: {mode}");
    Ok(())
}

fn fits(service: Service, mode: Mode) -> bool {
    match service {
        Service::Payment | Service::Stock | Service::Shipping => mode != Mode::Twice,
        Service::Dispatcher => matches!(mode, Mode::Twice | Mode::Off),
        Service::Orders | Service::Notifications => mode == Mode::Off,
    }
}

/// How a service is to treat this command.
pub(crate) async fn mode(
    transaction: &mut PgTransaction<'static>,
    service: Service,
    command: &Command,
) -> Result<Mode, sqlx::Error> {
    let mode = read(&mut **transaction, service).await?;
    let is_command = command.attempt.action == Action::Command;
    let applies = match mode {
        Mode::Off | Mode::Twice => false,
        Mode::Fail => true,
        Mode::Flaky => is_command && command.attempt.number == 1,
        Mode::Refuse | Mode::Slow | Mode::Crash => is_command,
    };
    Ok(if applies { mode } else { Mode::Off })
}

/// How the switch of a service stands.
pub(crate) async fn read(executor: impl PgExecutor<'_>, service: Service) -> Result<Mode, sqlx::Error> {
    let text: Option<String> = sqlx::query_scalar("select mode from shop.faults where service = $1")
        .bind(service.to_string())
        .fetch_optional(executor)
        .await?;
    let mode = text.and_then(|text| Mode::from_str(&text, false).ok());
    Ok(mode.unwrap_or(Mode::Off))
}

/// Ends the process as suddenly as `kill -9` does. The switch goes back first, outside the transaction that is lost, or the
/// command would end every process that it comes to.
pub(crate) async fn crash(pool: &PgPool, service: Service) -> Result<(), sqlx::Error> {
    sqlx::query("delete from shop.faults where service = $1")
        .bind(service.to_string())
        .execute(pool)
        .await?;
    eprintln!("{service}: the fault switch says crash");
    std::process::abort()
}
