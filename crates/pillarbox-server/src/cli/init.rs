//! `pillarbox init`
//!
//! With a database or a destination it writes only what is needed. Without, it writes every key with a comment.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;
use pillarbox_sinks::registry::{SINKS, SinkKind};

use super::database_args::CONFIG;
use crate::config;
use crate::database::DatabaseUrl;
use crate::failure::Failure;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  pillarbox init --database postgres://localhost/shop --destination rabbitmq
  pillarbox init --database shop.db --destination webhook --destination-url http://127.0.0.1:8080/events
  pillarbox init                            write every key, with comments";

/// For the owner alone: the file will have passwords, now or later.
const MODE: u32 = 0o600;

/// Writes a configuration to start from.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Init {
    /// Write to this file, like --config
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// Deliver the events of this database: a URL or a path
    #[arg(long, value_name = "URL")]
    database: Option<String>,

    /// Deliver to a destination of this type
    #[arg(
        long,
        value_name = "TYPE",
        value_parser = PossibleValuesParser::new(SINKS.iter().map(|sink| sink.name))
    )]
    destination: Option<String>,

    /// Set the address of the destination instead of a local one
    #[arg(long, value_name = "URL", requires = "destination")]
    destination_url: Option<String>,

    /// Overwrite an existing file
    #[arg(long)]
    force: bool,
}

impl Init {
    pub(super) fn run(self, config: Option<PathBuf>) -> Result<(), Failure> {
        let text = self.text()?;
        let file = self.file.clone().or(config).unwrap_or_else(|| CONFIG.into());
        let name = file.display();
        let mut options = std::fs::OpenOptions::new();
        options.write(true).mode(MODE);
        // One system call checks and creates, so no other process can create the file in between.
        if self.force {
            options.create(true).truncate(true);
        } else {
            options.create_new(true);
        }
        let mut opened = options.open(&file).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => Failure::failed(format!(
                "cannot write {name}: it exists (choose another name, or --force to overwrite it)"
            )),
            _ => Failure::failed(format!("cannot write {name}: {error}")),
        })?;
        opened
            .write_all(text.as_bytes())
            .map_err(|error| Failure::failed(format!("cannot write {name}: {error}")))?;
        let flag = if file == *CONFIG {
            String::new()
        } else {
            format!(" --config {name}")
        };
        output::line(&format!(
            "wrote {name}\nnext:\n  pillarbox migrate{flag}                 # creates the outbox\n  \
             pillarbox config check --connect{flag}  # tries every connection\n  pillarbox run{flag}"
        ))
    }

    fn text(&self) -> Result<String, Failure> {
        if self.database.is_none() && self.destination.is_none() {
            return Ok(config::SAMPLE.to_owned());
        }
        let database = self.database.as_deref().unwrap_or("sqlite://outbox.db");
        database
            .parse::<DatabaseUrl>()
            .map_err(|message| Failure::usage(format!("--database: {message}")))?;
        let name = self.destination.as_deref().unwrap_or("log");
        let sink = SINKS.iter().find(|sink| sink.name == name);
        let sink = sink.ok_or_else(|| Failure::usage(format!("--destination: unknown type `{name}`")))?;
        let keys = self.keys(sink)?;
        Ok(format!(
            "# Every key: docs/configuration.md. A URL with a password can be {{ env = \"NAME\" }} instead of a text.\n\n\
             [database]\nurl = {}\n\n[[destination]]\nname = \"{name}\"\ntype = \"{name}\"\n{keys}",
            quoted(database)
        ))
    }

    /// The keys of the sink. The first one has its address.
    fn keys(&self, sink: &SinkKind) -> Result<String, Failure> {
        if !sink.is_built_in {
            return Err(Failure::usage(format!(
                "--destination: this pillarbox was built without the {} sink (build it with `--features full`)",
                sink.name
            )));
        }
        let Some(url) = &self.destination_url else {
            return Ok(sink.minimal.to_owned());
        };
        let (first, rest) = sink.minimal.split_once('\n').unwrap_or((sink.minimal, ""));
        let Some((key, _)) = first.split_once(" = ") else {
            return Err(Failure::usage(format!(
                "--destination-url: a {} has no address",
                sink.name
            )));
        };
        Ok(format!("{key} = {}\n{rest}", quoted(url)))
    }
}

/// A text as a TOML string.
fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}
