//! Logs on standard error, as text or as JSON.
//!
//! With JSON every line on standard error is one object, also the error that ends a command, its warnings and a panic.

#[cfg(test)]
pub(crate) mod captured;
mod json;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::panic::PanicHookInfo;
use std::sync::OnceLock;

use clap::{Args, ValueEnum};
use tracing::Level;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::JsonFields;

use self::json::{JsonLines, Line};
use crate::failure::Failure;
use crate::output;

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
        env = FORMAT_VARIABLE,
        value_name = "FORMAT",
        default_value = "human",
        help_heading = "Logs"
    )]
    log_format: Format,
}

const FORMAT_VARIABLE: &str = "PILLARBOX_LOG_FORMAT";

/// The format of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Text, in colour on a terminal
    Human,
    /// One JSON object per line
    Json,
}

/// The format of this process, once logging has started.
static FORMAT: OnceLock<Format> = OnceLock::new();

/// The AMQP client logs every returned message with its payload, three errors for each failed attempt to connect, and an error
/// when it is closed. The NATS client logs an error because the sink disables its reconnects. sqlx logs slow statements with
/// their SQL. The sinks and the store log these facts themselves. A filter that names `lapin`, `async_nats` or `sqlx`
/// overrides this.
const QUIET: &str = "lapin=off,async_nats=off,sqlx=error";

/// Starts logging. `default` is the filter if none is given.
pub(crate) fn start(args: &LogArgs, default: &str) -> Result<(), Failure> {
    FORMAT.get_or_init(|| args.log_format);
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
        Format::Json => {
            std::panic::set_hook(Box::new(panicked));
            lines.fmt_fields(JsonFields::new()).event_format(JsonLines).init();
        }
    }
    Ok(())
}

/// Do these arguments, or the environment, ask for JSON? For a command line that cannot be parsed.
pub(crate) fn wants_json(arguments: impl IntoIterator<Item = OsString>) -> bool {
    let mut previous_is_flag = false;
    for argument in arguments {
        if argument == "--log-format=json" || (previous_is_flag && argument == "json") {
            return true;
        }
        previous_is_flag = argument == "--log-format";
    }
    std::env::var_os(FORMAT_VARIABLE).is_some_and(|format| format == "json")
}

/// Uses this format for everything that is printed before [`start`].
pub(crate) fn use_format(format: Format) {
    FORMAT.get_or_init(|| format);
}

/// Prints the error that ends a command. No filter hides it.
pub(crate) fn fatal(error: &str, exit_code: u8) {
    if is_json() {
        let line = Line::new(Level::ERROR, "command failed")
            .field("error", error)
            .field("exit_code", exit_code);
        eprintln!("{line}");
    } else {
        eprintln!("error: {}", output::escape_text(error));
    }
}

/// Prints a warning of a command.
pub(crate) fn warning(text: &str) {
    if is_json() {
        eprintln!("{}", Line::new(Level::WARN, text));
    } else {
        eprintln!("warning: {}", output::escape(text));
    }
}

/// Prints what a command does.
pub(crate) fn progress(text: &str) {
    if is_json() {
        eprintln!("{}", Line::new(Level::INFO, text));
    } else {
        eprintln!("{}", output::escape(text));
    }
}

fn is_json() -> bool {
    FORMAT.get() == Some(&Format::Json)
}

fn panicked(panic: &PanicHookInfo<'_>) {
    let location = panic.location().map(ToString::to_string);
    let line = Line::new(Level::ERROR, "panicked")
        .field("error", panic.payload_as_str())
        .field("location", location);
    eprintln!("{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_asks_for_json_with_one_word_or_two() {
        let asks = |arguments: &[&str]| wants_json(arguments.iter().map(OsString::from));
        assert!(asks(&["run", "--log-format", "json"]) && asks(&["--log-format=json", "run"]));
        assert!(!asks(&["run", "--log-format", "human", "json"]) && !asks(&["json"]));
    }
}
