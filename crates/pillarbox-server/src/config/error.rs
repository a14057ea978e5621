//! What is wrong with a configuration, and where.

use std::fmt;

/// Where something was written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// Nowhere in particular: something is missing from the file.
    File,
    /// On this line, counted from 1.
    Line(usize),
    /// Not in the file: in an environment variable or on the command line.
    Outside(String),
}

/// One thing that is wrong, or that deserves a warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Where.
    pub(crate) place: Place,
    /// What, and what to do about it.
    pub(crate) message: String,
}

/// Everything that is wrong with one file, in the order of its lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigError {
    /// The file's name, as the person gave it.
    pub(crate) file: String,
    /// At least one.
    pub(crate) findings: Vec<Finding>,
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
