//! Why a saga did not move.

use super::machine::Changed;
use crate::enqueue::EnqueueError;
use crate::error::StoreError;
use crate::text::json_error;

/// Why a saga did not start or move. The call wrote nothing; roll the transaction back.
#[derive(Debug, thiserror::Error)]
pub enum SagaError {
    /// The headers of a message are invalid. A retry is useless.
    #[error("this message is for a saga and cannot be read: {0}")]
    Message(String),
    /// The message does not carry the token that proves it. A retry is useless.
    #[error(
        "a message for the saga {name} {id} has the wrong header saga-token: its sender never got the command or request that \
         it names (check who else may publish to the saga's address)"
    )]
    WrongToken {
        /// Which kind of saga.
        name: String,
        /// Which one.
        id: String,
    },
    /// The payload of a reply is not what the step takes. A retry is useless.
    #[error("the reply to the step `{step}` of the saga {name} {id} cannot be taken: {}", json_error(.error))]
    Reply {
        /// Which kind of saga.
        name: String,
        /// Which one.
        id: String,
        /// Which step.
        step: String,
        /// What is wrong with it.
        error: serde_json::Error,
    },
    /// The saga's data is not of this program's type: another version wrote it.
    #[error(
        "the data of the saga {name} {id} cannot be read by this version of its definition: {}; \
         deliver the message again to a version that can", json_error(.error)
    )]
    Data {
        /// Which kind of saga.
        name: String,
        /// Which one.
        id: String,
        /// What is wrong with it.
        error: serde_json::Error,
    },
    /// The saga has begun steps that this definition does not have, or has elsewhere.
    #[error(
        "the saga {name} {id} has begun the steps {path:?}, and its definition does not begin so any more; \
         deliver the message again to a version that does"
    )]
    Changed {
        /// Which kind of saga.
        name: String,
        /// Which one.
        id: String,
        /// The steps that it has begun and not undone.
        path: Vec<String>,
    },
    /// The data has no JSON form.
    #[error("the data of the saga has no JSON form: {0}")]
    NoJson(serde_json::Error),
    /// The id cannot be one.
    #[error("{0:?} cannot be the id of a saga; use 1 to 1024 bytes, and no control characters")]
    Id(String),
    /// A command was rejected.
    #[error(transparent)]
    Enqueue(#[from] EnqueueError),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl SagaError {
    /// Is the message at fault? Then it belongs to the dead letters. Everything else is worth a retry.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Message(_) | Self::WrongToken { .. } | Self::Reply { .. } => true,
            Self::Data { .. }
            | Self::Changed { .. }
            | Self::NoJson(_)
            | Self::Id(_)
            | Self::Enqueue(_)
            | Self::Store(_) => false,
        }
    }

    pub(super) fn changed(name: &str, id: &str, changed: Changed) -> Self {
        Self::Changed {
            name: name.to_owned(),
            id: id.to_owned(),
            path: changed.path,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error() -> serde_json::Error {
        serde_json::from_str::<u32>("\"hunter2\"").expect_err("no number")
    }

    #[test]
    fn an_error_of_a_saga_has_none_of_the_content_that_it_is_about() {
        let (name, id) = ("order".to_owned(), "42".to_owned());
        for said in [
            SagaError::Reply {
                name: name.clone(),
                id: id.clone(),
                step: "payment".to_owned(),
                error: error(),
            },
            SagaError::Data {
                name,
                id,
                error: error(),
            },
        ] {
            let said = said.to_string();
            assert!(said.contains("expected u32 at line 1"), "{said}");
            assert!(!said.contains("hunter2"), "{said}");
        }
    }
}
