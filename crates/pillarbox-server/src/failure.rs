//! How a command fails: an error on standard error, and an exit code.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | tried and failed |
//! | 2 | not tried: invalid command line or configuration |
//! | 130 | a second signal ended the process at once |

use std::process::ExitCode;

use pillarbox::{EnqueueError, StoreError};
use pillarbox_store::OperateError;

use crate::config::ConfigError;
use crate::logs;

/// Why a command failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Tried and failed.
    Failed(String),
    /// Invalid command line or configuration; nothing was tried.
    Usage(String),
}

impl Failure {
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
    }

    /// The same with the name of the database.
    pub(crate) fn for_database(self, database: &str) -> Self {
        let named = |message| format!("database `{database}`: {message}");
        match self {
            Self::Failed(message) => Self::Failed(named(message)),
            Self::Usage(message) => Self::Usage(named(message)),
        }
    }

    /// Prints it on standard error and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        let (message, code) = match self {
            Self::Failed(message) => (message, 1),
            Self::Usage(message) => (message, 2),
        };
        logs::fatal(message, code);
        ExitCode::from(code)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<OperateError> for Failure {
    fn from(error: OperateError) -> Self {
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
