//! Logs, on standard error: for people on a terminal, as JSON for machines.

use std::io::IsTerminal;

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

use crate::failure::Failure;

/// What every command understands about logs.
#[derive(Debug, Args)]
pub(crate) struct Telemetry {
    /// What to log: error, warn, info, debug, trace, or per module as in `info,pillarbox_dispatch=debug`
    #[arg(
        long,
        global = true,
        env = "PILLARBOX_LOG",
        value_name = "FILTER",
        help_heading = "Logs"
    )]
    log: Option<String>,

    /// How to log
    #[arg(
        long,
        global = true,
        env = "PILLARBOX_LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "human",
        help_heading = "Logs"
    )]
    log_format: Format,
}

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Lines for people, in colour on a terminal
    Human,
    /// One JSON object per line
    Json,
}

/// The AMQP client logs the whole of every message that comes back, as a warning; the NATS client calls it an error that
/// the sink does not let it reconnect. Payloads are not for logs, and the sinks say what happened. Whoever names `lapin`
/// or `async_nats` in a filter gets it all the same.
const QUIET: &str = "lapin=error,async_nats=off";

/// Starts logging. `default` holds where nobody said otherwise.
pub(crate) fn start(telemetry: &Telemetry, default: &str) -> Result<(), Failure> {
    let text = telemetry.log.as_deref().unwrap_or(default);
    let filter = EnvFilter::try_new(format!("{QUIET},{text}")).map_err(|error| {
        Failure::usage(format!(
            "--log `{text}` is no filter: {error}; write for example `info` or `debug`"
        ))
    })?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match telemetry.log_format {
        Format::Human => lines
            .with_ansi(std::io::stderr().is_terminal())
            .with_target(false)
            .init(),
        Format::Json => lines.json().flatten_event(true).with_current_span(false).init(),
    }
    Ok(())
}
