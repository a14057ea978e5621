//! A saga as its table holds it, and the requests to a database about it.

use serde::Deserialize;
use serde_json::value::RawValue;
use time::OffsetDateTime;

use super::line::Line;
use super::state::{State, Status};
use super::token::Token;
use crate::error::StoreError;
use crate::text::json_error;

/// One saga.
#[derive(Debug, Clone)]
pub struct Row {
    pub(crate) name: String,
    pub(crate) id: String,
    /// Where its timeouts and operators' requests are sent.
    pub(crate) namespace: String,
    pub(crate) topic: String,
    pub(crate) state: State,
    /// The application's own, in JSON.
    pub(crate) data: String,
    pub(crate) last_error: Option<String>,
    pub(crate) timeout_at: Option<OffsetDateTime>,
    /// What the tokens of its attempts are made from. It never travels.
    pub(crate) attempt_secret: Token,
    /// What proves the saga's timeouts and the requests of operators.
    pub(crate) own_token: Token,
}

/// A request to a database, in the caller's transaction.
#[derive(Debug)]
pub enum Request<'a> {
    /// Write a new saga, unless there is one of that name and id.
    Insert(&'a Row, Log<'a>),
    /// Read a saga, and hold it until the transaction ends.
    Lock {
        /// Of which kind.
        name: &'a str,
        /// Which one.
        id: &'a str,
    },
    /// Write down how a saga that is held went on.
    Save(&'a Row, Log<'a>),
    /// Only write to its log.
    Note(&'a Row, Log<'a>),
}

impl<'a> Request<'a> {
    /// The kind of saga that it concerns.
    pub(crate) fn saga(&self) -> &'a str {
        match self {
            Self::Insert(row, _) | Self::Save(row, _) | Self::Note(row, _) => &row.name,
            Self::Lock { name, .. } => name,
        }
    }
}

/// Lines for the log.
#[derive(Debug, Clone, Copy)]
pub struct Log<'a>(pub(crate) &'a [Line]);

/// The answer of a database.
#[derive(Debug)]
pub enum Response {
    /// There is no such saga; or, of an insert, there was one already.
    Nothing,
    /// The saga.
    Found(Box<Row>),
    /// It is written.
    Written,
}

/// The columns of a saga as JSON, as `saga_lock.sql` returns them in either database.
#[derive(Deserialize)]
struct Columns {
    namespace: String,
    topic: String,
    status: String,
    path: Vec<String>,
    attempt: i64,
    tries: i64,
    in_doubt: bool,
    data: Box<RawValue>,
    last_error: Option<String>,
    attempt_secret: String,
    own_token: String,
}

impl Row {
    /// # Errors
    /// When another program wrote a row that no saga can have.
    pub(crate) fn read(name: &str, id: &str, json: &str) -> Result<Self, StoreError> {
        let unreadable = |why: &str| StoreError::Other(format!("the saga {name} {id} cannot be read: {why}"));
        let columns: Columns = serde_json::from_str(json).map_err(|error| unreadable(&json_error(&error)))?;
        let status =
            Status::parse(&columns.status).ok_or_else(|| unreadable("its status is none of ours"))?;
        if columns.path.is_empty() && !status.has_ended() {
            return Err(unreadable("it has not ended and is at no step"));
        }
        let count = |number: i64| u32::try_from(number).map_err(|_| unreadable("a count is none"));
        Ok(Self {
            name: name.to_owned(),
            id: id.to_owned(),
            namespace: columns.namespace,
            topic: columns.topic,
            state: State {
                status,
                path: columns.path,
                number: count(columns.attempt)?,
                tries: count(columns.tries)?,
                in_doubt: columns.in_doubt,
            },
            data: String::from(Box::<str>::from(columns.data)),
            last_error: columns.last_error,
            timeout_at: None, // written with every command
            attempt_secret: Token::new(columns.attempt_secret),
            own_token: Token::new(columns.own_token),
        })
    }

    /// The path as JSON.
    pub(crate) fn path(&self) -> String {
        serde_json::json!(self.state.path).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(status: &str, path: &str, attempt: &str) -> Result<Row, StoreError> {
        let json = format!(
            r#"{{"namespace": "a", "topic": "b", "status": "{status}", "path": {path}, "attempt": {attempt},
                "tries": 1, "in_doubt": false, "data": {{"order": 1e999}}, "last_error": null, "attempt_secret": "y", "own_token": "x"}}"#
        );
        Row::read("order", "1", &json)
    }

    #[test]
    fn what_no_saga_can_be_is_an_error_and_no_panic() {
        let row = read("running", r#"["payment"]"#, "2").expect("sound");
        assert_eq!(row.data, r#"{"order": 1e999}"#, "not read, only kept");
        assert!(read("completed", "[]", "0").is_ok());
        for (status, path, attempt) in [
            ("paused", r#"["payment"]"#, "1"),
            ("running", "[]", "1"),
            ("running", "7", "1"),
            ("running", r#"["payment"]"#, "-1"),
        ] {
            let error = read(status, path, attempt).expect_err("unsound").to_string();
            assert!(error.contains("the saga order 1 cannot be read"), "{error}");
        }
    }
}
