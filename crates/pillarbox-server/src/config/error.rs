//! Errors and warnings of a configuration, with their locations.

use std::fmt;

/// Where a value was written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// In the file, without a line: something is missing.
    File,
    /// On this line, counted from 1.
    Line(usize),
    /// In an environment variable or on the command line.
    Outside(String),
}

/// One error or warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Where.
    pub(crate) place: Place,
    /// What is wrong, why, and what to do.
    pub(crate) message: String,
}

/// All errors of one file, sorted by line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigError {
    /// The file's name, as it was given.
    pub(crate) file: String,
    /// At least one.
    pub(crate) findings: Vec<Finding>,
}

impl ConfigError {
    pub(crate) fn new(file: &str, mut findings: Vec<Finding>) -> Self {
        findings.sort_by(|a, b| a.place.cmp(&b.place));
        Self {
            file: file.to_owned(),
            findings,
        }
    }
}

impl Finding {
    pub(crate) fn new(place: Place, message: impl Into<String>) -> Self {
        Self {
            place,
            message: message.into(),
        }
    }

    /// One line: `pillarbox.toml:12: …`, or the variable or flag, or the file alone.
    pub(crate) fn line(&self, file: &str) -> String {
        match &self.place {
            Place::File => format!("{file}: {}", self.message),
            Place::Line(line) => format!("{file}:{line}: {}", self.message),
            Place::Outside(source) => format!("{source}: {}", self.message),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, finding) in self.findings.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            f.write_str(&finding.line(&self.file))?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}
