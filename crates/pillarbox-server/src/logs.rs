//! Logs on standard error, as text or as JSON.

use std::io::IsTerminal;

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

use crate::failure::Failure;

/// The log options of every command.
#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// Set the log level, or a filter like `info,pillarbox_dispatch=debug`
    #[arg(
        long,
        global = true,
        env = "PILLARBOX_LOG",
        value_name = "FILTER",
        help_heading = "Logs"
    )]
    log: Option<String>,

    /// Set the log format
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

/// The format of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Text, in colour on a terminal
    Human,
    /// One JSON object per line
    Json,
}

/// The AMQP client logs every returned message with its payload. The NATS client logs an error because the sink disables its
/// reconnects. The sinks log these facts without payloads. A filter that names `lapin` or `async_nats` overrides this.
const QUIET: &str = "lapin=error,async_nats=off";

/// Starts logging. `default` is the filter if none is given.
pub(crate) fn start(args: &LogArgs, default: &str) -> Result<(), Failure> {
    let text = args.log.as_deref().unwrap_or(default);
    let filter = EnvFilter::try_new(format!("{QUIET},{text}")).map_err(|error| {
        Failure::usage(format!(
            "--log: invalid filter `{text}`: {error} (use for example `info` or `debug`)"
        ))
    })?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match args.log_format {
        Format::Human => lines
            .with_ansi(std::io::stderr().is_terminal())
            .with_target(false)
            .init(),
        Format::Json => lines.json().flatten_event(true).with_current_span(false).init(),
    }
    Ok(())
}
