//! `pillarbox archive restore`
//!
//! **If we die here** the rows of earlier batches are restored. The command can be run again: it leaves out what exists.

use std::path::PathBuf;

use clap::Args;
use pillarbox_store::Operate;
use pillarbox_store::archive::Restored;

use super::super::actor::Because;
use super::super::database_args::DatabaseArgs;
use super::ls::unreadable;
use crate::archive::Reader;
use crate::failure::Failure;
use crate::logs;
use crate::output;

/// How many rows are restored in one transaction, and of how many bytes.
const ROWS: usize = 200;
const BYTES: usize = 16 * 1024 * 1024;

const EXAMPLES: &str = "\
Rows are put back as delivered or dead, and never sent again. Rows whose id or dedupe key is in the outbox are left out. If
retention would delete them at once, restore them into another database, or set `delivered = \"never\"` first.

Examples:
  pillarbox archive restore archive/2026-11-19-….jsonl.zst --dry-run
  pillarbox archive restore archive/2026-11-19-….jsonl.zst --database postgres://localhost/history";

/// Restores files.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Restore {
    /// Restore the rows of these files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Only count the rows
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    because: Because,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    database: DatabaseArgs,
}

impl Restore {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let database = self.database.open().await?;
        let operate = database.operate();
        let mut all = Restored::default();
        for file in &self.files {
            let mut reader = Reader::open(file).map_err(|error| unreadable(file, &error))?;
            let mut batch = Vec::new();
            let mut bytes = 0;
            for line in reader.by_ref() {
                let line = line.map_err(|error| unreadable(file, &error))?;
                bytes += line.row.get().len();
                batch.push(line.row.get().to_owned());
                if batch.len() >= ROWS || bytes >= BYTES {
                    self.restore(&*operate, &mut batch, &mut all).await?;
                    bytes = 0;
                }
            }
            self.restore(&*operate, &mut batch, &mut all).await?;
            if reader.is_torn() {
                let text = "ends in the middle of a batch, whose rows were not deleted";
                logs::warning(&format!("{} {text}", file.display()));
            }
        }
        if self.json {
            return output::json(&all);
        }
        let verb = if self.dry_run {
            "would be restored"
        } else {
            "restored"
        };
        output::line(&format!("{} rows {verb}, {} left out", all.restored, all.known))
    }

    async fn restore(
        &self,
        operate: &dyn Operate,
        batch: &mut Vec<String>,
        all: &mut Restored,
    ) -> Result<(), Failure> {
        if batch.is_empty() {
            return Ok(());
        }
        let rows = std::mem::take(batch);
        let restored = operate
            .restore(&self.because.operator(), &rows, self.dry_run)
            .await?;
        all.restored += restored.restored;
        all.known += restored.known;
        Ok(())
    }
}
