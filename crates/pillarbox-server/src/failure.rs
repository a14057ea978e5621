//! How a command fails: one clear sentence on standard error, and an honest exit code.
//!
//! | code | means |
//! |---|---|
//! | 0 | done |
//! | 1 | it was tried and failed |
//! | 2 | it was not tried: the command line or the configuration is wrong |
//! | 130 | a second signal ended the process at once |

use std::process::ExitCode;

use pillarbox::{EnqueueError, StoreError};

use crate::config::ConfigError;

/// Why a command did not do what it was asked to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Tried and failed.
    Failed(String),
    /// Wrong usage or configuration; nothing was tried.
    Usage(String),
}

impl Failure {
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
    }

    /// The same, with the name of the database that it is about.
    pub(crate) fn about(self, database: &str) -> Self {
        let about = |message| format!("database `{database}`: {message}");
        match self {
            Self::Failed(message) => Self::Failed(about(message)),
            Self::Usage(message) => Self::Usage(about(message)),
        }
    }

    /// Says it on standard error and gives the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        let (message, code) = match self {
            Self::Failed(message) => (message, 1),
            Self::Usage(message) => (message, 2),
        };
        eprintln!("error: {}", crate::output::escape_text(message));
        ExitCode::from(code)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<EnqueueError> for Failure {
    fn from(error: EnqueueError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::Usage(error.to_string())
    }
}
