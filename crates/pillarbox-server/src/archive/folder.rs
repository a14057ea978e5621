//! Writes rows to the folder of the archive.
//!
//! **If we die here** the file ends in the middle of a frame, and no row of it was deleted. No worker appends to it again,
//! because each has a file of its own.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use pillarbox::{Clock, StoreError, SystemClock};
use pillarbox_store::archive::Archive;
use uuid::Uuid;

use super::SUFFIX;

/// The folder of the archive, for one worker.
#[derive(Debug, Clone)]
pub(crate) struct Folder {
    path: Arc<Path>,
    database: Arc<str>,
    worker: Uuid,
}

impl Folder {
    /// Creates the folder if it is missing, for its owner alone.
    pub(crate) fn open(path: &Path, database: &str, worker: Uuid) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        Ok(Self {
            path: path.into(),
            database: database.into(),
            worker,
        })
    }

    /// May others than its owner enter it?
    pub(crate) fn is_open(&self) -> io::Result<bool> {
        Ok(fs::metadata(&self.path)?.mode() & 0o077 != 0)
    }

    fn file(&self) -> PathBuf {
        let date = SystemClock.wall().date();
        self.path.join(format!("{date}-{}{SUFFIX}", self.worker))
    }

    fn append(&self, rows: &[String]) -> io::Result<()> {
        let mut frame = zstd::Encoder::new(Vec::new(), zstd::DEFAULT_COMPRESSION_LEVEL)?;
        let database = serde_json::Value::from(&*self.database);
        for row in rows {
            writeln!(
                frame,
                "{{\"pillarbox\": 1, \"database\": {database}, \"row\": {row}}}"
            )?;
        }
        let frame = frame.finish()?;
        let path = self.file();
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path)?;
        let before = file.metadata()?.len();
        let written = file.write_all(&frame).and_then(|()| file.sync_data());
        if written.is_err() {
            // A part of a frame would hide those that are appended after it.
            file.set_len(before)?;
        }
        written?;
        if before == 0 {
            File::open(&*self.path)?.sync_all()?; // its name survives too
        }
        Ok(())
    }
}

#[async_trait]
impl Archive for Folder {
    #[expect(clippy::disallowed_methods, reason = "a sync of the disk may take long")]
    async fn write(&self, rows: Vec<String>) -> Result<(), StoreError> {
        let folder = self.clone();
        let written = tokio::task::spawn_blocking(move || folder.append(&rows)).await;
        let written = written.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        written.map_err(|error| {
            StoreError::Other(format!(
                "cannot write to the archive {}: {error} (nothing is deleted until it can be written)",
                self.path.display()
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::reader::{Line, Reader};
    use super::*;

    fn rows(numbers: std::ops::Range<u32>) -> Vec<String> {
        numbers
            .map(|number| format!("{{\"id\": {number}, \"status\": \"dead\"}}"))
            .collect()
    }

    fn read(path: &Path) -> (Vec<u64>, bool) {
        let mut reader = Reader::open(path).unwrap();
        let lines: Vec<Line> = reader.by_ref().map(Result::unwrap).collect();
        let number =
            |line: &Line| serde_json::from_str::<serde_json::Value>(line.row.get()).unwrap()["id"].as_u64();
        (lines.iter().filter_map(number).collect(), reader.is_torn())
    }

    #[test]
    fn batches_of_a_day_are_in_one_file_that_only_its_owner_reads() {
        let folder = tempfile::tempdir().unwrap();
        let archive = Folder::open(&folder.path().join("archive"), "shop", Uuid::nil()).unwrap();
        archive.append(&rows(0..3)).unwrap();
        archive.append(&rows(3..5)).unwrap();
        assert!(!archive.is_open().unwrap());
        let mode = fs::metadata(archive.file()).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(read(&archive.file()), ((0..5).collect(), false));
    }

    #[test]
    fn a_file_that_ends_in_the_middle_is_read_up_to_there() {
        let folder = tempfile::tempdir().unwrap();
        let archive = Folder::open(folder.path(), "shop", Uuid::nil()).unwrap();
        archive.append(&rows(0..3)).unwrap();
        let whole = fs::metadata(archive.file()).unwrap().len();
        archive.append(&rows(3..2000)).unwrap();
        let file = OpenOptions::new().write(true).open(archive.file()).unwrap();
        for cut in [whole + 500, whole + 20, whole + 1] {
            file.set_len(cut).unwrap();
            let (found, is_torn) = read(&archive.file());
            assert!(
                is_torn && found[..3] == [0, 1, 2] && found.is_sorted(),
                "{found:?}"
            );
        }
    }
}
