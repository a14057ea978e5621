//! How a handler says that it did not work out: the words of [`pillarbox::Outcome`].
//!
//! An error of any kind that a handler passes on by `?` means "try again". What will never work is said aloud, by
//! [`Failed::reject`]. A database that cannot be reached is nobody's failed attempt, also where it is the handler that
//! notices.

use std::error::Error;
use std::time::Duration;

use pillarbox::saga::SagaError;
use pillarbox::{EnqueueError, Outcome, StoreError};

/// Why an event was not handled. Everything that the handler did is rolled back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed(Outcome);

impl Failed {
    /// This attempt failed; a later one may not. Attempts are limited by the consumer's policy.
    pub fn retry(reason: impl Into<String>) -> Self {
        Self(Outcome::retry(reason))
    }

    /// The same, with a wish: not before this time is over.
    pub fn retry_after(reason: impl Into<String>, after: Duration) -> Self {
        Self(Outcome::Retry {
            reason: reason.into(),
            after: Some(after),
        })
    }

    /// This event will never be handled: it goes to the dead letters at once.
    pub fn reject(reason: impl Into<String>) -> Self {
        Self(Outcome::reject(reason))
    }

    /// What the handler needs is not there now. The attempt does not count, and the event waits as long as it takes.
    pub fn unavailable(reason: impl Into<String>) -> Self {
        Self(Outcome::unavailable(reason))
    }

    /// The same in the words of the state machine.
    pub fn outcome(self) -> Outcome {
        self.0
    }
}

/// Any error means "try again"; a database that cannot be reached means "later".
impl<E: Error + 'static> From<E> for Failed {
    fn from(error: E) -> Self {
        let reason = in_full(&error);
        let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
        while let Some(error) = cause {
            if is_away(error) {
                return Self::unavailable(reason);
            }
            cause = error.source();
        }
        Self::retry(reason)
    }
}

/// The error and what caused it, without repeating what a cause already said.
fn in_full(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}

/// Does the error say that a database cannot be reached?
fn is_away(error: &(dyn Error + 'static)) -> bool {
    if let Some(error) = error.downcast_ref::<StoreError>() {
        return matches!(error, StoreError::Unavailable(_));
    }
    if let Some(error) = error.downcast_ref::<EnqueueError>() {
        return matches!(
            error,
            EnqueueError::Store(StoreError::Unavailable(_)) | EnqueueError::Busy
        );
    }
    // It speaks as what it wraps does, and what it wraps is not among its causes.
    if let Some(error) = error.downcast_ref::<SagaError>() {
        return match error {
            SagaError::Store(error) => is_away(error),
            SagaError::Enqueue(error) => is_away(error),
            SagaError::Message(_)
            | SagaError::Reply { .. }
            | SagaError::Data { .. }
            | SagaError::Changed { .. }
            | SagaError::NoJson(_)
            | SagaError::Id(_) => false,
        };
    }
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    if let Some(error) = error.downcast_ref::<sqlx::Error>() {
        return crate::database::is_away(error);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the order could not be saved")]
    struct Outer(#[source] StoreError);

    fn name(failed: Failed) -> &'static str {
        failed.outcome().name()
    }

    #[test]
    fn an_error_that_is_passed_on_means_try_again() {
        fn handler() -> Result<u8, Failed> {
            Ok("x".parse::<u8>()?)
        }
        let failed = handler().expect_err("no number");
        assert_eq!(failed, Failed::retry("invalid digit found in string"));
    }

    #[test]
    fn a_database_that_is_away_is_no_failed_attempt_however_deep_it_is_said() {
        let away = || StoreError::Unavailable("no route".to_owned());
        assert_eq!(name(away().into()), "unavailable");
        assert_eq!(name(EnqueueError::Store(away()).into()), "unavailable");
        let failed = Failed::from(Outer(away()));
        assert_eq!(
            failed,
            Failed::unavailable("the order could not be saved: the database is unavailable: no route")
        );
        assert_eq!(name(Outer(StoreError::Other("no".to_owned())).into()), "retry");
    }

    #[test]
    fn a_database_that_is_away_is_no_failed_attempt_of_a_saga() {
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
    fn sqlx_is_asked_as_well() {
        assert_eq!(name(sqlx::Error::PoolTimedOut.into()), "unavailable");
        assert_eq!(name(sqlx::Error::RowNotFound.into()), "retry");
    }
}
