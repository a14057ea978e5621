//! Starts a saga in the caller's transaction: its row, its log, its first command and that command's timeout.
//!
//! **If we die here** the caller's transaction rolls back: there is no saga, and no command was sent.

use std::fmt::Display;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::definition::{Definition, Saga, check_text};
use super::error::SagaError;
use super::machine;
use super::row::{Log, Request, Response, Row};
use super::token::Token;
use crate::failpoint;
use crate::outbox::Connection;
use crate::outbox::sealed::Backend as _;

/// The result of starting a saga.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Started {
    /// It begins, if the caller's transaction commits.
    New,
    /// A saga of that name and id exists, in any state. Nothing happened.
    Duplicate,
}

impl<T: Serialize + DeserializeOwned + 'static> Saga<T> {
    /// Begins the definition of a saga by this name. Rows and messages hold the name, so never change it.
    pub fn define(name: &str) -> Definition<T> {
        Definition::new(name)
    }

    /// Starts a saga in the transaction that `connection` is in. The id is the application's own, such as the order's.
    ///
    /// # Errors
    /// When the first command is rejected, or the database fails.
    pub async fn start<C: Connection + ?Sized>(
        &self,
        connection: &mut C,
        id: impl Display,
        data: &T,
    ) -> Result<Started, SagaError> {
        let id = id.to_string();
        check_text(&id).map_err(|_| SagaError::Id(id.clone()))?;
        let begun = machine::begin(&self.inner.plan);
        let mut row = Row {
            name: self.inner.name.clone(),
            id,
            namespace: self.inner.namespace.clone(),
            topic: self.inner.topic.clone(),
            state: begun.state,
            data: serde_json::to_string(data).map_err(SagaError::NoJson)?,
            last_error: None,
            timeout_at: None,
            attempt_secret: Token::random()?,
            own_token: Token::random()?,
        };
        let events = self.emit(&mut row, data, begun.send)?;
        let request = Request::Insert(&row, Log(&begun.log));
        match connection.backend().saga(&self.inner.outbox, request).await? {
            Response::Written => {}
            Response::Nothing | Response::Found(_) => return Ok(Started::Duplicate),
        }
        failpoint::hit("saga_saved");
        self.inner.outbox.enqueue_all(connection, &events).await?;
        failpoint::hit("saga_enqueued");
        Ok(Started::New)
    }
}
