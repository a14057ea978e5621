//! The inbox on connections of diesel that block.

use ::diesel::connection::LoadConnection;
use ::diesel::pg::Pg;
use uuid::Uuid;

use super::{CHUNK, Handled, Inbox, Key, OnceError, new_ones, postgres};
use crate::error::StoreError;
use crate::outbox::diesel::{Blocking, answered};

impl Inbox {
    /// [`once`](Self::once) on a connection of diesel that blocks, such as `PgConnection`.
    ///
    /// # Errors
    /// As for [`once`](Self::once).
    pub fn once_blocking<C, T, E>(
        &self,
        connection: &mut C,
        consumer: &str,
        event: impl Into<Key>,
        handler: impl FnOnce(&mut C) -> Result<T, E>,
    ) -> Result<Handled<T>, OnceError<E>>
    where
        C: LoadConnection<Backend = Pg> + Send,
    {
        let key = event.into();
        let new = self.mark_all_blocking(connection, consumer, &[key]);
        if new.map_err(OnceError::Inbox)? != [true] {
            return Ok(Handled::Before);
        }
        match handler(connection) {
            Ok(done) => Ok(Handled::Now(done)),
            Err(error) => {
                // If even this fails, so will the commit.
                self.unmark_blocking(connection, consumer, &[key]).ok();
                Err(OnceError::Handler(error))
            }
        }
    }

    /// [`mark_all`](Self::mark_all) on such a connection.
    ///
    /// # Errors
    /// As for [`mark_all`](Self::mark_all).
    pub fn mark_all_blocking<C>(
        &self,
        connection: &mut C,
        consumer: &str,
        events: &[Key],
    ) -> Result<Vec<bool>, StoreError>
    where
        C: LoadConnection<Backend = Pg> + Send,
    {
        let ids: Vec<Uuid> = events.iter().map(|key| key.id()).collect();
        let new = answered(postgres::mark(&mut Blocking(connection), self, consumer, &ids))?;
        Ok(new_ones(&ids, new))
    }

    /// [`unmark`](Self::unmark) on such a connection.
    ///
    /// # Errors
    /// As for [`unmark`](Self::unmark).
    pub fn unmark_blocking<C>(
        &self,
        connection: &mut C,
        consumer: &str,
        events: &[Key],
    ) -> Result<(), StoreError>
    where
        C: LoadConnection<Backend = Pg> + Send,
    {
        let ids: Vec<Uuid> = events.iter().map(|key| key.id()).collect();
        answered(postgres::unmark(&mut Blocking(connection), self, consumer, &ids))
    }

    /// [`prune`](Self::prune) on such a connection.
    ///
    /// # Errors
    /// As for [`prune`](Self::prune).
    pub fn prune_blocking<C>(&self, connection: &mut C, consumer: &str) -> Result<u64, StoreError>
    where
        C: LoadConnection<Backend = Pg> + Send,
    {
        answered(postgres::prune(&mut Blocking(connection), self, consumer, CHUNK))
    }
}
