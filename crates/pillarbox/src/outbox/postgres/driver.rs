//! What a library that talks to PostgreSQL implements.
//!
//! Every statement has rows of a number and a text, so that a library needs few lines.

use std::future::Future;
use std::sync::Arc;

use uuid::Uuid;

use crate::error::StoreError;
use crate::schema::error_of;

/// A parameter of a statement. JSON and times are passed as text, so that no library needs a feature for them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value<'a> {
    Id(Option<Uuid>),
    Text(Option<&'a str>),
    Number(i32),
    Bytes(Option<&'a [u8]>),
    Ids(Vec<Option<Uuid>>),
    Texts(Vec<Option<&'a str>>),
    Numbers(Vec<i32>),
    Bodies(Vec<Option<&'a [u8]>>),
}

/// A library that can talk to PostgreSQL.
pub(crate) trait Driver: Send {
    /// Runs one statement whose rows are a number and a text. `prepared` asks for a statement that stays prepared,
    /// where that is a choice.
    fn rows(
        &mut self,
        statement: &Arc<str>,
        values: Vec<Value<'_>>,
        prepared: bool,
    ) -> impl Future<Output = Result<Vec<(i64, String)>, DriverError>> + Send;
}

/// Why a statement failed.
#[derive(Debug)]
pub(crate) enum DriverError {
    /// The server answered with an error.
    Answer {
        code: String,
        message: String,
        detail: Option<String>,
    },
    /// The connection was lost.
    Lost(String),
    /// An error of the library.
    Other(String),
}

impl From<DriverError> for StoreError {
    fn from(error: DriverError) -> Self {
        match error {
            DriverError::Answer { code, message, .. } => error_of(&code, &message),
            DriverError::Lost(why) => Self::Unavailable(why),
            DriverError::Other(why) => Self::Other(why),
        }
    }
}

/// Implements [`Connection`](crate::outbox::Connection) for a type that is a [`Driver`], or lends one.
#[cfg(any(feature = "postgres", feature = "tokio-postgres", feature = "diesel-async"))]
macro_rules! connection {
    ($type:ty) => {
        $crate::outbox::postgres::connection!($type, Self, connection => connection);
    };
    ($type:ty, $driver:ty, $connection:ident => $lent:expr) => {
        impl $crate::outbox::sealed::Sealed for $type {}
        impl $crate::outbox::Connection for $type {
            type Backend = $driver;

            fn backend(&mut self) -> &mut Self::Backend {
                let $connection = self;
                $lent
            }
        }
    };
}
#[cfg(any(feature = "postgres", feature = "tokio-postgres", feature = "diesel-async"))]
pub(in crate::outbox) use connection;
