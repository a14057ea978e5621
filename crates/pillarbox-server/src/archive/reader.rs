//! Reads a file of the archive, line by line.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;

/// How long the header of a frame is at most, and a little more.
const MAX_HEADER: u64 = 32;

/// One row.
#[derive(Debug, Deserialize)]
pub(crate) struct Line {
    /// The version of the format.
    pub(crate) pillarbox: u32,
    /// The columns of the row, as its store wrote them.
    pub(crate) row: Box<RawValue>,
}

/// The lines of a file.
pub(crate) struct Reader {
    lines: BufReader<zstd::Decoder<'static, BufReader<File>>>,
    is_torn: bool,
}

impl Reader {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            lines: BufReader::new(zstd::Decoder::new(File::open(path)?)?),
            is_torn: false,
        })
    }

    /// Are fewer bytes left than the header of a frame has?
    fn is_at_end(&mut self) -> bool {
        let mut rest = Vec::new();
        let file = self.lines.get_mut().get_mut();
        let read = file.take(MAX_HEADER).read_to_end(&mut rest);
        read.is_ok_and(|read| (read as u64) < MAX_HEADER)
    }

    /// Did the file end in the middle of a batch?
    pub(crate) fn is_torn(&self) -> bool {
        self.is_torn
    }
}

impl Iterator for Reader {
    type Item = io::Result<Line>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_torn {
            return None;
        }
        let mut line = Vec::new();
        match self.lines.read_until(b'\n', &mut line) {
            Ok(0) => None,
            Ok(_) if line.last() != Some(&b'\n') => {
                self.is_torn = true;
                None
            }
            Ok(_) => Some(parse(&line)),
            // The last bytes are the beginning of a frame. Elsewhere the file is damaged.
            Err(_) if self.is_at_end() => {
                self.is_torn = true;
                None
            }
            Err(error) => Some(Err(error)),
        }
    }
}

fn parse(line: &[u8]) -> io::Result<Line> {
    let line: Line = serde_json::from_slice(line)?;
    if line.pillarbox != 1 {
        let message = format!("its format is {}, and this version reads 1", line.pillarbox);
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(line)
}
