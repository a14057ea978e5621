//! `pillarbox version`

use clap::Args;
use pillarbox_sinks::registry::SINKS;
use pillarbox_store::stores::migration::Migration;
use pillarbox_store::stores::{postgres, sqlite};
use serde::Serialize;

use crate::failure::Failure;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  pillarbox version --verbose
  pillarbox version --json";

/// Prints what this program is.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Version {
    /// Print the commit, the schema versions and the sinks too
    #[arg(long, short)]
    verbose: bool,

    /// Print all of it as JSON
    #[arg(long)]
    json: bool,
}

impl Version {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let build = Build::current();
        if self.json {
            return output::json(&build);
        }
        output::line(&format!("pillarbox {}", build.version))?;
        if self.verbose {
            build.print()?;
        }
        Ok(())
    }
}

/// What the program was built from.
#[derive(Debug, Serialize)]
struct Build {
    version: &'static str,
    /// `None` in debug builds, and where neither Git nor `PILLARBOX_COMMIT` named it.
    commit: Option<&'static str>,
    schema: Schema,
    sinks: Sinks,
}

/// The newest schema version that it knows, by database.
#[derive(Debug, Serialize)]
struct Schema {
    postgres: i32,
    sqlite: i32,
}

#[derive(Debug, Serialize)]
struct Sinks {
    built_in: Vec<&'static str>,
    not_built_in: Vec<&'static str>,
}

impl Build {
    fn current() -> Self {
        let named = |built_in| SINKS.iter().filter(move |sink| sink.is_built_in == built_in);
        Self {
            version: env!("CARGO_PKG_VERSION"),
            commit: option_env!("PILLARBOX_COMMIT"),
            schema: Schema {
                postgres: newest(postgres::migrations()),
                sqlite: newest(sqlite::migrations()),
            },
            sinks: Sinks {
                built_in: named(true).map(|sink| sink.name).collect(),
                not_built_in: named(false).map(|sink| sink.name).collect(),
            },
        }
    }

    fn print(&self) -> Result<(), Failure> {
        output::line(&format!("commit: {}", self.commit.unwrap_or("unknown")))?;
        let Schema { postgres, sqlite } = self.schema;
        output::line(&format!("schema: postgres {postgres}, sqlite {sqlite}"))?;
        output::line(&format!("sinks: {}", self.sinks.built_in.join(", ")))?;
        if self.sinks.not_built_in.is_empty() {
            return Ok(());
        }
        output::line(&format!(
            "not built in: {} (build with --features full)",
            self.sinks.not_built_in.join(", ")
        ))
    }
}

fn newest(migrations: &[Migration]) -> i32 {
    migrations.last().map_or(0, |migration| migration.version)
}
