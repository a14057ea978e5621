//! `pillarbox archive ls`

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::archive::{Reader, SUFFIX};
use crate::failure::Failure;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  pillarbox archive ls /var/lib/pillarbox/archive
  pillarbox archive ls /var/lib/pillarbox/archive --json";

/// Lists files.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Ls {
    /// List the files of this folder
    folder: PathBuf,

    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// A file of the archive.
#[derive(Debug, Serialize)]
struct Listed {
    file: String,
    bytes: u64,
    rows: u64,
    /// How many rows there are in each status.
    statuses: BTreeMap<String, u64>,
    /// The first and the last time of insertion.
    from: Option<String>,
    to: Option<String>,
    /// Does it end with a whole batch?
    whole: bool,
}

#[derive(Deserialize)]
struct Row {
    status: String,
    created_at: String,
}

impl Ls {
    pub(super) fn run(self) -> Result<(), Failure> {
        let mut files = Vec::new();
        let entries = std::fs::read_dir(&self.folder).map_err(|error| unreadable(&self.folder, &error))?;
        for entry in entries {
            let path = entry.map_err(|error| unreadable(&self.folder, &error))?.path();
            if path.to_string_lossy().ends_with(SUFFIX) {
                files.push(path);
            }
        }
        files.sort();
        let mut listed = Vec::new();
        for file in files {
            let one = list(&file)?;
            if self.json {
                output::json(&one)?;
            }
            listed.push(one);
        }
        if self.json {
            return Ok(());
        }
        if listed.is_empty() {
            return output::line("no archived events");
        }
        let rows: Vec<Vec<String>> = listed.iter().map(Listed::cells).collect();
        output::table(
            &[
                "FILE",
                "BYTES",
                "ROWS",
                "DELIVERED",
                "DEAD",
                "FROM",
                "TO",
                "WHOLE",
            ],
            &rows,
        )
    }
}

impl Listed {
    fn cells(&self) -> Vec<String> {
        let count = |status| self.statuses.get(status).copied().unwrap_or_default().to_string();
        let time = |time: &Option<String>| time.clone().unwrap_or_else(|| "-".to_owned());
        vec![
            self.file.clone(),
            self.bytes.to_string(),
            self.rows.to_string(),
            count("delivered"),
            count("dead"),
            time(&self.from),
            time(&self.to),
            if self.whole { "yes" } else { "no" }.to_owned(),
        ]
    }
}

fn list(path: &Path) -> Result<Listed, Failure> {
    let failed = |error: &std::io::Error| unreadable(path, error);
    let mut reader = Reader::open(path).map_err(|error| failed(&error))?;
    let mut listed = Listed {
        file: path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        bytes: path.metadata().map_err(|error| failed(&error))?.len(),
        rows: 0,
        statuses: BTreeMap::new(),
        from: None,
        to: None,
        whole: true,
    };
    for line in reader.by_ref() {
        let line = line.map_err(|error| failed(&error))?;
        let row: Row = serde_json::from_str(line.row.get()).map_err(|error| failed(&error.into()))?;
        listed.rows += 1;
        *listed.statuses.entry(row.status).or_default() += 1;
        let created = Some(row.created_at);
        if listed.from.is_none() || created < listed.from {
            listed.from.clone_from(&created);
        }
        listed.to = listed.to.max(created);
    }
    listed.whole = !reader.is_torn();
    Ok(listed)
}

pub(super) fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("cannot read {}: {error}", path.display()))
}
