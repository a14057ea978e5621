//! Transactions of diesel that a [unit of work](crate::UnitOfWork) can commit: of diesel-async, and of diesel itself, which
//! blocks.
//!
//! diesel lends a transaction to a closure and commits at its end. A unit of work clears what aggregates recorded only after
//! the commit, so it begins and commits by itself. Inside another transaction of the same connection it is a savepoint, as
//! with diesel's closures: then it is the outer commit that counts.
//!
//! **If we die here** the transaction rolls back with its connection.

use std::ops::{Deref, DerefMut};

use ::diesel::connection::{Connection, LoadConnection, TransactionManager};
use ::diesel::pg::Pg;
use uuid::Uuid;

use crate::error::StoreError;
use crate::outbox::diesel as driver;
use crate::outbox::{Outbox, postgres};

#[cfg(feature = "diesel-async")]
pub use self::asynchronous::{Transaction, begin};

/// A connection of diesel that blocks, or what dereferences to one: `&mut PgConnection`, `Box<PgConnection>`, a pooled
/// connection.
pub trait Blocking: DerefMut<Target: LoadConnection<Backend = Pg> + Sized + Send> {}

impl<C: DerefMut<Target: LoadConnection<Backend = Pg> + Sized + Send>> Blocking for C {}

/// A transaction of diesel that blocks. Dropped without a commit, it is rolled back.
#[derive(Debug)]
pub struct BlockingTransaction<C: Blocking> {
    connection: C,
    is_open: bool,
}

type Manager<C> = <<C as Deref>::Target as Connection>::TransactionManager;

/// Begins a transaction for a unit of work.
///
/// ```no_run
/// # fn example(connection: &mut diesel::PgConnection, invitation: &mut pillarbox::Recorded)
/// # -> Result<(), Box<dyn std::error::Error>> {
/// use pillarbox::{Outbox, UnitOfWork, diesel};
///
/// let outbox = Outbox::default();
/// let mut work = UnitOfWork::new(&outbox, diesel::begin_blocking(connection)?);
/// // … a repository that takes `&mut PgConnection` takes `&mut work`
/// work.commit_blocking(&mut [invitation])?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// When the database does not answer.
pub fn begin_blocking<C: Blocking>(mut connection: C) -> Result<BlockingTransaction<C>, StoreError> {
    Manager::<C>::begin_transaction(&mut connection).map_err(driver::store_error)?;
    Ok(BlockingTransaction {
        connection,
        is_open: true,
    })
}

impl<C: Blocking> BlockingTransaction<C> {
    pub(crate) fn commit(mut self) -> Result<(), StoreError> {
        self.is_open = false; // whatever becomes of it, diesel has ended it
        Manager::<C>::commit_transaction(&mut self.connection).map_err(driver::store_error)
    }

    /// Those of these ids that the transaction sees in the outbox.
    pub(crate) fn taken(&mut self, outbox: &Outbox, ids: &[Uuid]) -> Result<Vec<Uuid>, StoreError> {
        let connection = &mut *self.connection;
        driver::answered(postgres::ids_taken(
            &mut driver::Blocking(connection),
            outbox,
            ids,
        ))
    }
}

impl<C: Blocking> Drop for BlockingTransaction<C> {
    fn drop(&mut self) {
        if self.is_open {
            // If it fails the connection is lost, and the transaction with it. diesel marks the connection as broken.
            let _lost = Manager::<C>::rollback_transaction(&mut self.connection);
        }
    }
}

impl<C: Blocking> Deref for BlockingTransaction<C> {
    type Target = C::Target;

    fn deref(&self) -> &C::Target {
        &self.connection
    }
}

impl<C: Blocking> DerefMut for BlockingTransaction<C> {
    fn deref_mut(&mut self) -> &mut C::Target {
        &mut self.connection
    }
}

#[cfg(feature = "diesel-async")]
mod asynchronous {
    use std::ops::{Deref, DerefMut};
    use std::pin::pin;
    use std::task::{Context, Waker};

    use ::diesel::connection::TransactionDepthChange;
    use diesel_async::{
        AnsiTransactionManager, AsyncPgConnection, SimpleAsyncConnection, TransactionManager,
    };

    use crate::error::StoreError;
    use crate::outbox::diesel::store_error;

    /// A transaction of diesel-async. Dropped without a commit, it is rolled back.
    pub struct Transaction<C: DerefMut<Target = AsyncPgConnection>> {
        connection: C,
        is_open: bool,
    }

    /// Begins a transaction for a unit of work, on `&mut AsyncPgConnection` or what dereferences to it, such as a pooled
    /// connection.
    ///
    /// ```no_run
    /// # async fn example(
    /// #     connection: &mut diesel_async::AsyncPgConnection,
    /// #     invitation: &mut pillarbox::Recorded,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// use pillarbox::{Outbox, UnitOfWork, diesel};
    ///
    /// let outbox = Outbox::default();
    /// let mut work = UnitOfWork::new(&outbox, diesel::begin(connection).await?);
    /// // … a repository that takes `&mut AsyncPgConnection` takes `&mut work`
    /// work.commit(&mut [invitation]).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn begin<C>(mut connection: C) -> Result<Transaction<C>, StoreError>
    where
        C: DerefMut<Target = AsyncPgConnection> + Send,
    {
        let begun = AnsiTransactionManager::begin_transaction(&mut *connection).await;
        begun.map_err(store_error)?;
        Ok(Transaction {
            connection,
            is_open: true,
        })
    }

    impl<C: DerefMut<Target = AsyncPgConnection> + Send> crate::outbox::sealed::Sealed for Transaction<C> {}

    impl<C: DerefMut<Target = AsyncPgConnection> + Send> crate::outbox::Connection for Transaction<C> {
        type Backend = AsyncPgConnection;

        fn backend(&mut self) -> &mut AsyncPgConnection {
            &mut self.connection
        }
    }

    impl<C: DerefMut<Target = AsyncPgConnection> + Send> crate::outbox::Transaction for Transaction<C> {
        async fn commit(mut self) -> Result<(), StoreError> {
            self.is_open = false; // whatever becomes of it, diesel-async ends it or marks the connection as broken
            let committed = AnsiTransactionManager::commit_transaction(&mut *self.connection).await;
            committed.map_err(store_error)
        }
    }

    impl<C: DerefMut<Target = AsyncPgConnection>> Drop for Transaction<C> {
        /// Sends the rollback without waiting for its answer, as sqlx and tokio-postgres do: whatever the connection is
        /// used for next comes after it.
        fn drop(&mut self) {
            if !self.is_open {
                return;
            }
            let connection = &mut *self.connection;
            let status = AnsiTransactionManager::transaction_manager_status_mut(connection);
            let depth = status.transaction_depth().ok().flatten().map(u32::from);
            let rollback = match depth {
                None => return, // the connection is broken, or its transaction has ended
                Some(1) => "ROLLBACK".to_owned(),
                Some(depth) => format!("ROLLBACK TO SAVEPOINT diesel_savepoint_{}", depth - 1),
            };
            // The first poll hands the statement to the task that owns the connection.
            let sent =
                pin!(connection.batch_execute(&rollback)).poll(&mut Context::from_waker(Waker::noop()));
            drop(sent);
            let status = AnsiTransactionManager::transaction_manager_status_mut(connection);
            let ended = status.transaction_state();
            let ended =
                ended.and_then(|state| state.change_transaction_depth(TransactionDepthChange::DecreaseDepth));
            if ended.is_err() {
                AnsiTransactionManager::transaction_manager_status_mut(connection).set_in_error();
            }
        }
    }

    impl<C: DerefMut<Target = AsyncPgConnection>> Deref for Transaction<C> {
        type Target = AsyncPgConnection;

        fn deref(&self) -> &AsyncPgConnection {
            &self.connection
        }
    }

    impl<C: DerefMut<Target = AsyncPgConnection>> DerefMut for Transaction<C> {
        fn deref_mut(&mut self) -> &mut AsyncPgConnection {
            &mut self.connection
        }
    }

    impl<C: DerefMut<Target = AsyncPgConnection>> std::fmt::Debug for Transaction<C> {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("Transaction")
                .field("is_open", &self.is_open)
                .finish_non_exhaustive()
        }
    }
}
