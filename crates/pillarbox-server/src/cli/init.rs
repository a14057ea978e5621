//! `pillarbox init`

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use crate::config;
use crate::failure::Failure;
use crate::output;

/// Writes a configuration to start from.
#[derive(Debug, Args)]
pub(crate) struct Init {
    /// Write to this file
    #[arg(value_name = "FILE", default_value = super::database_args::CONFIG)]
    file: PathBuf,

    /// Overwrite an existing file
    #[arg(long)]
    force: bool,
}

impl Init {
    pub(super) fn run(self) -> Result<(), Failure> {
        let name = self.file.display();
        let mut options = std::fs::OpenOptions::new();
        options.write(true);
        // One system call checks and creates, so no other process can create the file in between.
        if self.force {
            options.create(true).truncate(true);
        } else {
            options.create_new(true);
        }
        let mut file = options.open(&self.file).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => Failure::failed(format!(
                "cannot write {name}: it exists (choose another name, or --force to overwrite it)"
            )),
            _ => Failure::failed(format!("cannot write {name}: {error}")),
        })?;
        file.write_all(config::SAMPLE.as_bytes())
            .map_err(|error| Failure::failed(format!("cannot write {name}: {error}")))?;
        output::line(&format!(
            "wrote {name}\nnext: edit it, then\n  pillarbox config check {name}\n  pillarbox run --migrate --config {name}"
        ))
    }
}
