//! The fault switch: a row in `shop.faults` per faulty service. Services read it for every command, so a change applies at once
//! and in every process.

use std::fmt;

use clap::ValueEnum;
use pillarbox::saga::{Action, Command};
use sqlx::{PgExecutor, PgPool, PgTransaction};

use crate::Result;
use crate::environment::Environment;
use crate::services::Service;

/// The fault of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// No fault
    Off,
    /// Refuse commands; do compensations
    Refuse,
    /// Fail commands and compensations
    Fail,
    /// Fail the first attempt of every command
    Flaky,
    /// Do commands, and reply after the saga's timeout
    Slow,
    /// Abort the process in the middle of the next command, once
    Crash,
    /// Publish every message twice (dispatcher only)
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

/// Sets the switch.
pub(crate) async fn set(environment: &Environment, service: Service, mode: Mode) -> Result<()> {
    if !fits(service, mode) {
        return Err(format!("{service} has no fault `{mode}` (see `shop fault --help`)").into());
    }
    let pool = environment.pool()?;
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

/// The fault that applies to this command.
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

/// The current switch of a service.
pub(crate) async fn read(executor: impl PgExecutor<'_>, service: Service) -> Result<Mode, sqlx::Error> {
    let text: Option<String> = sqlx::query_scalar("select mode from shop.faults where service = $1")
        .bind(service.to_string())
        .fetch_optional(executor)
        .await?;
    let mode = text.and_then(|text| Mode::from_str(&text, false).ok());
    Ok(mode.unwrap_or(Mode::Off))
}

/// Ends the process as suddenly as `kill -9`. It resets the switch first, outside the lost transaction. Otherwise the command
/// would kill every process that receives it.
pub(crate) async fn crash(pool: &PgPool, service: Service) -> Result<(), sqlx::Error> {
    sqlx::query("delete from shop.faults where service = $1")
        .bind(service.to_string())
        .execute(pool)
        .await?;
    eprintln!("{service}: fault switch: crash");
    std::process::abort()
}
