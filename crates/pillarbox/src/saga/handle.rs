//! Handles a message for a saga, in the caller's transaction.
//!
//! ```text
//! message ─▶ lock the row ─▶ decide (pure) ─▶ save state and log ─▶ enqueue what follows ─▶ the caller commits
//! ```
//!
//! Two messages for one saga wait for each other at its row. The consumer acknowledges a message after the commit, so that
//! it is redelivered if there was none. A message that is redelivered after the commit finds its attempt over and changes
//! nothing.
//!
//! Whoever can publish to the saga's address can name any saga and attempt. So a message must carry the token that the row
//! proves, before anything else is done with it. A message without leaves no trace in the saga's log. A reply to an attempt that is over has
//! a token too: it changes nothing, and is logged.
//!
//! **If we die here** the caller's transaction rolls back, and the message is delivered again.

use std::fmt::Display;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::definition::Saga;
use super::error::SagaError;
use super::line::{Line, What};
use super::machine::{self, Decision, Input, Moved, Why};
use super::message::Message;
use super::row::{Log, Request, Response, Row};
use super::state::{Action, Answer, Attempt, Status};
use super::token::Token;
use crate::failpoint;
use crate::outbox::Connection;
use crate::outbox::sealed::Backend as _;
use crate::text::error_text;

/// The result of a message to a saga.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handled {
    /// The saga moved on, and has this status now.
    Moved(Status),
    /// It changed nothing.
    Ignored(Why),
    /// There is no such saga: it was deleted after its end, or the message belongs to another program.
    Unknown,
    /// It is not for sagas of this name.
    NotOurs,
}

/// A reply, for callers that received it otherwise than by [headers](super::message).
#[derive(Debug, Clone)]
pub struct Reply<'a> {
    /// What it is the reply to.
    pub to: Attempt,
    /// The token of the command that it replies to.
    pub token: Token,
    /// What was answered.
    pub answer: Answer,
    /// Why, for the operator.
    pub reason: Option<String>,
    /// What the reply carries, in JSON.
    pub payload: &'a [u8],
}

impl<T: Serialize + DeserializeOwned + 'static> Saga<T> {
    /// Handles any message for a saga: a reply, a timeout, or an operator's request. A consumer's handler calls only this.
    ///
    /// # Errors
    /// When the message is invalid, the definition does not fit the saga, or the database fails.
    /// [`SagaError::is_final`] tells whether a retry is useless.
    pub async fn handle<C: Connection + ?Sized>(
        &self,
        connection: &mut C,
        message: &Message<'_>,
    ) -> Result<Handled, SagaError> {
        if !message.is_for(&self.inner.name) {
            return Ok(Handled::NotOurs);
        }
        let id = message.id().map_err(SagaError::Message)?;
        let input = message.input().map_err(SagaError::Message)?;
        let token = message.token().map_err(SagaError::Message)?;
        self.tell(connection, id, input, Some(&token), message.payload())
            .await
    }

    /// Takes a reply.
    ///
    /// # Errors
    /// As for [`handle`](Self::handle).
    pub async fn reply<C: Connection + ?Sized>(
        &self,
        connection: &mut C,
        id: impl Display,
        reply: Reply<'_>,
    ) -> Result<Handled, SagaError> {
        let input = Input::Answered {
            to: reply.to,
            answer: reply.answer,
            reason: reply.reason,
        };
        self.tell(
            connection,
            &id.to_string(),
            input,
            Some(&reply.token),
            reply.payload,
        )
        .await
    }

    /// Handles the timeout of an attempt. The caller vouches for it: there is no token to check.
    ///
    /// # Errors
    /// As for [`handle`](Self::handle).
    pub async fn timeout<C: Connection + ?Sized>(
        &self,
        connection: &mut C,
        id: impl Display,
        attempt: Attempt,
    ) -> Result<Handled, SagaError> {
        self.tell(connection, &id.to_string(), Input::TimedOut(attempt), None, &[])
            .await
    }

    /// Gives up and undoes what was done, as `pillarbox sagas compensate` asks for. The caller vouches for it: there is no
    /// token to check.
    ///
    /// # Errors
    /// As for [`handle`](Self::handle).
    pub async fn compensate<C: Connection + ?Sized>(
        &self,
        connection: &mut C,
        id: impl Display,
    ) -> Result<Handled, SagaError> {
        self.tell(connection, &id.to_string(), Input::Compensate, None, &[])
            .await
    }

    async fn tell<C: Connection + ?Sized>(
        &self,
        connection: &mut C,
        id: &str,
        input: Input,
        token: Option<&Token>,
        payload: &[u8],
    ) -> Result<Handled, SagaError> {
        let (name, outbox) = (&self.inner.name, &self.inner.outbox);
        let row = match connection
            .backend()
            .saga(outbox, Request::Lock { name, id })
            .await?
        {
            Response::Found(row) => *row,
            Response::Nothing | Response::Written => return Ok(Handled::Unknown),
        };
        failpoint::hit("saga_locked");
        if token.is_some_and(|token| !is_proven(&row, &input, token)) {
            let (name, id) = (name.clone(), id.to_owned());
            return Err(SagaError::WrongToken { name, id });
        }
        let decision = machine::decide(&self.inner.plan, &row.state, input.clone(), fastrand::f64());
        match decision.map_err(|changed| SagaError::changed(name, id, changed))? {
            Decision::Moved(moved) => self.go_on(connection, row, &input, moved, payload).await,
            Decision::Ignored(why) => {
                if let Some(line) = worth_noting(input) {
                    connection
                        .backend()
                        .saga(outbox, Request::Note(&row, Log(&[line])))
                        .await?;
                }
                Ok(Handled::Ignored(why))
            }
        }
    }

    async fn go_on<C: Connection + ?Sized>(
        &self,
        connection: &mut C,
        mut row: Row,
        input: &Input,
        moved: Moved,
        payload: &[u8],
    ) -> Result<Handled, SagaError> {
        let data = self.data(&mut row, input, payload)?;
        row.state = moved.state;
        row.last_error = error(input).or(row.last_error);
        let events = self.emit(&mut row, &data, moved.send)?;
        let request = Request::Save(&row, Log(&moved.log));
        connection.backend().saga(&self.inner.outbox, request).await?;
        failpoint::hit("saga_saved");
        self.inner.outbox.enqueue_all(connection, &events).await?;
        failpoint::hit("saga_enqueued");
        Ok(Handled::Moved(row.state.status))
    }

    /// The saga's data, with what a reply says taken into it. Nothing that this version does not know is lost from a row
    /// whose step takes nothing.
    fn data(&self, row: &mut Row, input: &Input, payload: &[u8]) -> Result<T, SagaError> {
        let mut data: T = serde_json::from_str(&row.data).map_err(|error| SagaError::Data {
            name: row.name.clone(),
            id: row.id.clone(),
            error,
        })?;
        let Some(step) = done(input) else {
            return Ok(data);
        };
        if let Some(take) = self.inner.functions(step).and_then(|step| step.take.as_ref()) {
            take(&mut data, payload).map_err(|error| SagaError::Reply {
                name: row.name.clone(),
                id: row.id.clone(),
                step: step.to_owned(),
                error,
            })?;
            row.data = serde_json::to_string(&data).map_err(SagaError::NoJson)?;
        }
        Ok(data)
    }
}

/// Does the token prove the message?
fn is_proven(row: &Row, input: &Input, token: &Token) -> bool {
    match input {
        Input::Answered { to, .. } => row.attempt_secret.of_attempt(to) == *token,
        Input::TimedOut(_) | Input::Resume(_) | Input::Compensate => row.own_token == *token,
    }
}

/// The step that is done by what arrived.
fn done(input: &Input) -> Option<&str> {
    match input {
        Input::Answered {
            to,
            answer: Answer::Done,
            ..
        } if to.action == Action::Command => Some(&to.step),
        Input::Answered { .. } | Input::TimedOut(_) | Input::Resume(_) | Input::Compensate => None,
    }
}

/// What an operator should know of the message, if it is bad news.
fn error(input: &Input) -> Option<String> {
    let about = |to: &Attempt| format!("{} {}, attempt {}", to.action, to.step, to.number);
    match input {
        Input::Answered { to, answer, reason } => match answer {
            Answer::Done => None,
            Answer::Failed | Answer::Refused => {
                let reason = reason.as_deref().unwrap_or("no reason was given");
                let text = format!("{}: {}: {reason}", about(to), answer.as_str());
                Some(error_text(&text))
            }
        },
        Input::TimedOut(to) => Some(format!("{}: no answer in time", about(to))),
        Input::Resume(_) | Input::Compensate => None,
    }
}

/// A late reply is logged, since an operator may need it. A late timeout is the normal case.
fn worth_noting(input: Input) -> Option<Line> {
    match input {
        Input::Answered { to, answer, reason } => {
            let reason = reason.map(|reason| format!(": {}", error_text(&reason)));
            Some(Line {
                what: What::Ignored,
                about: Some(to),
                detail: Some(format!("{}{}", answer.as_str(), reason.unwrap_or_default())),
            })
        }
        Input::TimedOut(_) | Input::Resume(_) | Input::Compensate => None,
    }
}
