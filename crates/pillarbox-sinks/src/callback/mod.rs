//! Delivers by calling an async function in the application's own process.
//!
//! `Ok` means delivered. Any error means a retry by the destination's policy. [`CallbackError::Reject`] gives up on the
//! event. A panic is an error like any other, and does not end the dispatcher. Payloads are decompressed first.
//!
//! **If we die here** the function may have run. It is called again, with the same event id.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use pillarbox::{Delivery, Outcome, Sink};

use crate::message::{MAX_DECOMPRESSED, Recoder};

/// A sink that calls a function.
///
/// ```
/// use pillarbox_sinks::{Callback, CallbackError};
///
/// let sink = Callback::new(|delivery| async move {
///     if delivery.event.payload.is_empty() {
///         return Err(CallbackError::reject("there is nothing in it"));
///     }
///     let order: serde_json::Value = serde_json::from_slice(delivery.event.payload.as_bytes())?;
///     println!("{} {order}", delivery.event.id);
///     Ok(())
/// });
/// ```
pub struct Callback<F> {
    function: F,
    recoder: Option<Recoder>,
}

/// Why a callback failed. Every error converts into [`CallbackError::Retry`], so `?` retries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallbackError {
    /// Try again.
    Retry {
        /// The error.
        reason: String,
        /// The earliest time for the next attempt.
        after: Option<Duration>,
    },
    /// Give up on the event.
    Reject {
        /// The reason.
        reason: String,
    },
}

impl CallbackError {
    /// A failed attempt.
    pub fn retry(reason: impl Into<String>) -> Self {
        Self::Retry {
            reason: reason.into(),
            after: None,
        }
    }

    /// A failed attempt, and how long to wait before the next.
    pub fn retry_after(reason: impl Into<String>, after: Duration) -> Self {
        Self::Retry {
            reason: reason.into(),
            after: Some(after),
        }
    }

    /// A rejection: the event becomes dead.
    pub fn reject(reason: impl Into<String>) -> Self {
        Self::Reject {
            reason: reason.into(),
        }
    }
}

impl<E: std::error::Error> From<E> for CallbackError {
    fn from(error: E) -> Self {
        Self::retry(error.to_string())
    }
}

impl<F, R> Callback<F>
where
    F: Fn(Delivery) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), CallbackError>> + Send + 'static,
{
    /// A sink that calls `function` for every attempt.
    pub fn new(function: F) -> Self {
        Self {
            function,
            recoder: Some(Recoder::decompressing(MAX_DECOMPRESSED)),
        }
    }

    /// Passes compressed payloads as they are stored, with their `content_encoding`.
    #[must_use]
    pub fn compressed(self) -> Self {
        Self {
            recoder: None,
            ..self
        }
    }

    /// Rejects payloads that are larger than this when decompressed; [`MAX_DECOMPRESSED`] by default.
    #[must_use]
    pub fn max_decompressed(self, bytes: usize) -> Self {
        Self {
            recoder: Some(Recoder::decompressing(bytes)),
            ..self
        }
    }

    async fn call(&self, delivery: Delivery) -> Outcome {
        let call = async { (self.function)(delivery).await };
        match AssertUnwindSafe(call).catch_unwind().await {
            Ok(Ok(())) => Outcome::Delivered,
            Ok(Err(CallbackError::Retry { reason, after })) => Outcome::Retry { reason, after },
            Ok(Err(CallbackError::Reject { reason })) => Outcome::Reject { reason },
            Err(panic) => Outcome::retry(format!("the callback panicked: {}", words(panic.as_ref()))),
        }
    }
}

#[async_trait]
impl<F, R> Sink for Callback<F>
where
    F: Fn(Delivery) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), CallbackError>> + Send + 'static,
{
    async fn deliver(&self, delivery: &Delivery) -> Outcome {
        let recoder = self.recoder.as_ref();
        let Some((recoder, plan)) =
            recoder.and_then(|recoder| Some((recoder, recoder.plan(&delivery.event)?)))
        else {
            return self.call(delivery.clone()).await;
        };
        match recoder.recode(delivery, plan).await {
            Ok(recoded) => self.call(recoded.delivery.clone()).await,
            Err(outcome) => outcome,
        }
    }

    /// A function is always available.
    async fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::delivery;
    use pillarbox::Event;

    async fn outcome(result: fn() -> Result<(), CallbackError>) -> Outcome {
        let sink = Callback::new(move |_| async move { result() });
        sink.deliver(&delivery(Event::new("shop", "orders"))).await
    }

    #[tokio::test]
    async fn ok_is_delivered() {
        assert_eq!(outcome(|| Ok(())).await, Outcome::Delivered);
    }

    #[tokio::test]
    async fn any_error_is_tried_again() {
        let failed = outcome(|| Ok("x".parse::<u8>().map(|_| ())?)).await;
        assert_eq!(failed, Outcome::retry("invalid digit found in string"));
        let later = outcome(|| Err(CallbackError::retry_after("busy", Duration::from_secs(3)))).await;
        assert_eq!(
            later,
            Outcome::Retry {
                reason: "busy".to_owned(),
                after: Some(Duration::from_secs(3))
            }
        );
    }

    #[tokio::test]
    async fn a_refusal_is_for_good() {
        assert_eq!(
            outcome(|| Err(CallbackError::reject("no"))).await,
            Outcome::reject("no")
        );
    }

    #[tokio::test]
    async fn a_panic_is_tried_again_and_says_what_it_said() {
        let panicked = outcome(|| panic!("order {} is odd", 7)).await;
        assert_eq!(panicked, Outcome::retry("the callback panicked: order 7 is odd"));
    }

    #[cfg(feature = "zstd")]
    #[tokio::test]
    async fn what_is_stored_compressed_comes_as_it_was_unless_asked_otherwise() {
        use pillarbox::compress::compress;

        let event = Event::new("shop", "orders")
            .json(&"all work and no play ".repeat(100))
            .unwrap();
        let stored = delivery(compress(&event, 0).unwrap());
        let expect = |encoding: Option<&'static str>, len: usize| {
            move |got: Delivery| async move {
                let is_so =
                    got.event.content_encoding.as_deref() == encoding && got.event.payload.len() == len;
                if is_so {
                    Ok(())
                } else {
                    Err(CallbackError::reject("it came otherwise"))
                }
            }
        };
        let decoded = Callback::new(expect(None, event.payload.len()));
        assert_eq!(decoded.deliver(&stored).await, Outcome::Delivered);
        let compressed = Callback::new(expect(Some("zstd"), stored.event.payload.len())).compressed();
        assert_eq!(compressed.deliver(&stored).await, Outcome::Delivered);
        let narrow = Callback::new(expect(None, 0)).max_decompressed(1000);
        assert_eq!(narrow.deliver(&stored).await.name(), "reject");
    }
}
