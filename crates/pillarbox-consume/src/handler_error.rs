//! Why a handler failed, in the terms of [`pillarbox::Outcome`].
//!
//! Any error that a handler returns with `?` means "try again". A handler that can never succeed returns
//! [`HandlerError::reject`]. An unreachable database uses no attempt, even if the handler is the first to notice.

use std::error::Error;
use std::time::Duration;

use pillarbox::saga::SagaError;
use pillarbox::text::json_error;
use pillarbox::{EnqueueError, Outcome, StoreError};

/// Why an event was not handled. The handler's transaction rolls back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandlerError(Outcome);

impl HandlerError {
    /// This attempt failed; a later one may succeed. The consumer's policy limits the attempts.
    pub fn retry(reason: impl Into<String>) -> Self {
        Self(Outcome::retry(reason))
    }

    /// The same, but not before this time has passed.
    pub fn retry_after(reason: impl Into<String>, after: Duration) -> Self {
        Self(Outcome::Retry {
            reason: reason.into(),
            after: Some(after),
        })
    }

    /// This event can never be handled: it becomes a dead letter at once.
    pub fn reject(reason: impl Into<String>) -> Self {
        Self(Outcome::reject(reason))
    }

    /// Something that the handler needs is unavailable. The attempt does not count, and the event waits as long as needed.
    pub fn unavailable(reason: impl Into<String>) -> Self {
        Self(Outcome::unavailable(reason))
    }

    /// The outcome for the state machine.
    pub fn outcome(self) -> Outcome {
        self.0
    }
}

/// Any error means "retry"; an unreachable database means "unavailable".
impl<E: Error + 'static> From<E> for HandlerError {
    fn from(error: E) -> Self {
        let reason = with_causes(&error);
        let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
        while let Some(error) = cause {
            if is_unavailable(error) {
                return Self::unavailable(reason);
            }
            cause = error.source();
        }
        Self::retry(reason)
    }
}

/// The error and its causes, without repetition, and without the content that JSON errors quote.
fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = Some(error);
    while let Some(error) = cause {
        let cause_text = error.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        if let Some(json) = error.downcast_ref::<serde_json::Error>() {
            text = text.replace(&cause_text, &json_error(json));
        }
        cause = error.source();
    }
    text
}

/// Does the error mean that a database cannot be reached?
fn is_unavailable(error: &(dyn Error + 'static)) -> bool {
    if let Some(error) = error.downcast_ref::<StoreError>() {
        return matches!(error, StoreError::Unavailable(_));
    }
    if let Some(error) = error.downcast_ref::<EnqueueError>() {
        return matches!(
            error,
            EnqueueError::Store(StoreError::Unavailable(_)) | EnqueueError::Busy
        );
    }
    // Its text is that of the error inside, which `source` does not return.
    if let Some(error) = error.downcast_ref::<SagaError>() {
        return match error {
            SagaError::Store(error) => is_unavailable(error),
            SagaError::Enqueue(error) => is_unavailable(error),
            SagaError::Message(_)
            | SagaError::WrongToken { .. }
            | SagaError::Reply { .. }
            | SagaError::Data { .. }
            | SagaError::Changed { .. }
            | SagaError::NoJson(_)
            | SagaError::Id(_) => false,
        };
    }
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    if let Some(error) = error.downcast_ref::<sqlx::Error>() {
        return crate::database::is_unavailable(error);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the order could not be saved")]
    struct Outer(#[source] StoreError);

    fn name(failed: HandlerError) -> &'static str {
        failed.outcome().name()
    }

    #[test]
    fn an_error_returned_with_a_question_mark_means_retry() {
        fn handler() -> Result<u8, HandlerError> {
            Ok("x".parse::<u8>()?)
        }
        let failed = handler().expect_err("no number");
        assert_eq!(failed, HandlerError::retry("invalid digit found in string"));
    }

    #[test]
    fn a_json_error_says_nothing_of_the_content_however_deep() {
        #[derive(Debug, thiserror::Error)]
        #[error("the address cannot be read: {0}")]
        struct Quoting(#[source] serde_json::Error);

        let json = || serde_json::from_str::<u32>("\"hunter2\"").expect_err("no number");
        let clean = "invalid type, expected u32 at line 1 column 9";
        assert_eq!(HandlerError::from(json()), HandlerError::retry(clean));
        assert_eq!(
            HandlerError::from(Quoting(json())),
            HandlerError::retry(format!("the address cannot be read: {clean}"))
        );
    }

    #[test]
    fn an_unavailable_database_uses_no_attempt_however_deep_the_cause() {
        let away = || StoreError::Unavailable("no route".to_owned());
        assert_eq!(name(away().into()), "unavailable");
        assert_eq!(name(EnqueueError::Store(away()).into()), "unavailable");
        let failed = HandlerError::from(Outer(away()));
        assert_eq!(
            failed,
            HandlerError::unavailable("the order could not be saved: the database is unavailable: no route")
        );
        assert_eq!(name(Outer(StoreError::Other("no".to_owned())).into()), "retry");
    }

    #[test]
    fn an_unavailable_database_uses_no_attempt_of_a_saga() {
        let away = || StoreError::Unavailable("no route".to_owned());
        assert_eq!(name(SagaError::Store(away()).into()), "unavailable");
        assert_eq!(
            name(SagaError::Enqueue(EnqueueError::Store(away())).into()),
            "unavailable"
        );
        assert_eq!(name(SagaError::Enqueue(EnqueueError::Busy).into()), "unavailable");
        assert_eq!(
            name(SagaError::Store(StoreError::Other("no".to_owned())).into()),
            "retry"
        );
        assert_eq!(name(SagaError::Id(String::new()).into()), "retry");
    }

    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    #[test]
    fn errors_of_sqlx_are_recognised() {
        assert_eq!(name(sqlx::Error::PoolTimedOut.into()), "unavailable");
        assert_eq!(name(sqlx::Error::RowNotFound.into()), "retry");
    }
}
