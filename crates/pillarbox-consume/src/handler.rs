//! Handles an event: a plain `async fn`, or a type that implements [`Handler`].
//!
//! ```
//! # #[cfg(feature = "postgres")]
//! # mod example {
//! use pillarbox_consume::{HandlerError, Handler, Received};
//! use sqlx::PgTransaction;
//!
//! #[derive(serde::Deserialize)]
//! struct OrderCreated {
//!     order: i64,
//! }
//!
//! // As a function …
//! async fn order_created(
//!     transaction: &mut PgTransaction<'static>,
//!     event: Received<OrderCreated>,
//! ) -> Result<(), HandlerError> {
//!     sqlx::query("insert into letters (order_id) values ($1)")
//!         .bind(event.body.order)
//!         .execute(&mut **transaction)
//!         .await?;
//!     Ok(())
//! }
//!
//! // … or as a type, with what it needs.
//! struct Letters {
//!     sender: String,
//! }
//!
//! impl Handler<PgTransaction<'static>, OrderCreated> for Letters {
//!     async fn handle(
//!         &self,
//!         transaction: &mut PgTransaction<'static>,
//!         event: Received<OrderCreated>,
//!     ) -> Result<(), HandlerError> {
//!         sqlx::query("insert into letters (order_id, sender) values ($1, $2)")
//!             .bind(event.body.order)
//!             .bind(&self.sender)
//!             .execute(&mut **transaction)
//!             .await?;
//!         Ok(())
//!     }
//! }
//! # }
//! ```

use std::future::Future;
use std::marker::PhantomData;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use pillarbox::text::json_error;
use serde::de::DeserializeOwned;

use crate::handler_error::HandlerError;
use crate::received::Received;

/// Handles one type of event.
///
/// * Works in the given transaction, which holds the event's mark. It neither commits nor rolls back.
/// * Called with one event at a time per namespace and key, in order; other keys run concurrently.
/// * Its changes in the transaction happen once: a failed attempt rolls back. Effects elsewhere (a mail, an HTTP call) may
///   happen again.
/// * May panic: that is a failed attempt.
pub trait Handler<Tx, T>: Send + Sync + 'static {
    /// Handles the event.
    fn handle(
        &self,
        transaction: &mut Tx,
        event: Received<T>,
    ) -> impl Future<Output = Result<(), HandlerError>> + Send;
}

/// A function that borrows the transaction while it runs. Every matching function implements it; do not implement it yourself.
pub trait Function<'a, Tx: 'a, T>: Send + Sync {
    /// What it returns.
    type Future: Future<Output = Result<(), HandlerError>> + Send + 'a;

    /// Calls it.
    fn call(&self, transaction: &'a mut Tx, event: Received<T>) -> Self::Future;
}

impl<'a, F, Fut, Tx, T> Function<'a, Tx, T> for F
where
    F: Fn(&'a mut Tx, Received<T>) -> Fut + Send + Sync,
    Fut: Future<Output = Result<(), HandlerError>> + Send + 'a,
    Tx: 'a,
{
    type Future = Fut;

    fn call(&self, transaction: &'a mut Tx, event: Received<T>) -> Fut {
        self(transaction, event)
    }
}

impl<F, Tx, T> Handler<Tx, T> for F
where
    F: for<'a> Function<'a, Tx, T> + 'static,
    Tx: Send + 'static,
    T: Send + 'static,
{
    fn handle(
        &self,
        transaction: &mut Tx,
        event: Received<T>,
    ) -> impl Future<Output = Result<(), HandlerError>> + Send {
        self.call(transaction, event)
    }
}

/// A handler of any body type, with its decoding.
pub(crate) trait Erased<Tx>: Send + Sync {
    fn handle<'a>(
        &'a self,
        transaction: &'a mut Tx,
        event: Received<Bytes>,
    ) -> BoxFuture<'a, Result<(), HandlerError>>;
}

/// Decodes the body from JSON. A body that cannot be decoded is rejected: retrying would not help.
pub(crate) struct Typed<H, T> {
    handler: H,
    body: PhantomData<fn() -> T>,
}

impl<H, T> Typed<H, T> {
    pub(crate) fn new(handler: H) -> Self {
        Self {
            handler,
            body: PhantomData,
        }
    }
}

impl<H, Tx, T> Erased<Tx> for Typed<H, T>
where
    H: Handler<Tx, T>,
    Tx: Send,
    T: DeserializeOwned + Send,
{
    fn handle<'a>(
        &'a self,
        transaction: &'a mut Tx,
        event: Received<Bytes>,
    ) -> BoxFuture<'a, Result<(), HandlerError>> {
        Box::pin(async move {
            let body = serde_json::from_slice(&event.body).map_err(|error| {
                let reason = json_error(&error);
                HandlerError::reject(format!("body cannot be decoded: {reason}"))
            })?;
            self.handler.handle(transaction, event.with_body(body)).await
        })
    }
}

/// Passes the body on unchanged.
pub(crate) struct Raw<H>(pub(crate) H);

impl<H, Tx> Erased<Tx> for Raw<H>
where
    H: Handler<Tx, Bytes>,
    Tx: Send,
{
    fn handle<'a>(
        &'a self,
        transaction: &'a mut Tx,
        event: Received<Bytes>,
    ) -> BoxFuture<'a, Result<(), HandlerError>> {
        Box::pin(self.0.handle(transaction, event))
    }
}
