//! The databases that hold an outbox, as the dispatcher and the daemon see them.
//!
//! **This API is unstable.** Applications use [`pillarbox`]: it enqueues, consumes and runs sagas. This crate is for what
//! delivers and operates: the dispatcher, the daemon, and the tests of both.
//!
//! | module | what it holds |
//! |---|---|
//! | [`store`] | the port of the dispatcher: find, claim, route, settle, renew, sweep |
//! | [`actor`] | who operates, how far the actor reaches, and what it may do |
//! | [`adopt`] | the port to adopted tables: import |
//! | [`archive`] | where rows go before retention deletes them |
//! | [`audit`] | who changed what, and why |
//! | [`operate`] | the port of operators: list, show, retry, skip, delete, pause |
//! | [`quotas`] | how many pending events a role or a tenant may have |
//! | [`retention`] | how long rows are kept after their end |
//! | [`sagas`] | sagas and their logs, as operators see them |
//! | [`state`], [`verdict`] | the four states of a row, and what follows from an attempt |
//! | [`stores`] | memory, PostgreSQL, SQLite |

pub mod actor;
pub mod adopt;
pub mod archive;
pub mod audit;
pub mod operate;
pub mod quotas;
pub mod retention;
pub mod sagas;
pub mod sample;
pub mod state;
pub mod store;
pub mod stores;
pub mod verdict;

pub use actor::{Actor, OperateError};
pub use operate::Operate;
pub use pillarbox::StoreError;
pub use state::{Lease, State, Status};
pub use store::{Scope, Store};
pub use verdict::Verdict;
