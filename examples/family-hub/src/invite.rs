//! The command and its handler, which checks the rules, changes the aggregate, saves it and commits.

use pillarbox::sqlite::begin;
use pillarbox::{CommitError, EnqueueError, Outbox, UnitOfWork};
use sqlx::SqlitePool;
use uuid::Uuid;

use crate::invitation::FamilyMemberInvitation;
use crate::repository;

/// Invites a member to a family.
#[derive(Debug)]
pub(crate) struct InviteFamilyMemberByEmail {
    pub(crate) family: Uuid,
    pub(crate) email: String,
    role: String,
    invited_by: Uuid,
}

/// The result of the command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Invited {
    New,
    /// The command was handled before. There is no change and no event.
    Already,
}

/// Why the command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error("invalid e-mail address: {0}")]
    NoAddress(String),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Begin(#[from] EnqueueError),
    #[error(transparent)]
    Commit(#[from] CommitError),
}

impl InviteFamilyMemberByEmail {
    pub(crate) fn new(family: Uuid, email: &str, role: &str, invited_by: Uuid) -> Self {
        Self {
            family,
            email: email.to_owned(),
            role: role.to_owned(),
            invited_by,
        }
    }

    /// Checks the business rules and creates the aggregate.
    pub(crate) fn to_invitation(&self) -> Result<FamilyMemberInvitation, Refused> {
        if !self.email.contains('@') {
            return Err(Refused::NoAddress(self.email.clone()));
        }
        Ok(FamilyMemberInvitation::create_email_invitation(
            self.family,
            &self.email,
            &self.role,
            self.invited_by,
        ))
    }
}

/// Handles commands.
pub(crate) struct Handler {
    pool: SqlitePool,
    outbox: Outbox,
}

impl Handler {
    pub(crate) fn new(pool: SqlitePool, outbox: Outbox) -> Self {
        Self { pool, outbox }
    }

    /// Handles a command. It may be called again for a command that was handled or interrupted before.
    pub(crate) async fn handle(&self, command: &InviteFamilyMemberByEmail) -> Result<Invited, Refused> {
        let mut work = UnitOfWork::new(&self.outbox, begin(&self.pool).await?);
        if repository::is_invited(&mut work, command.family, &command.email).await? {
            return Ok(Invited::Already);
        }
        let mut invitation = command.to_invitation()?;
        repository::add(&mut work, &invitation).await?;
        work.commit(&mut [&mut invitation]).await?;
        Ok(Invited::New)
    }

    /// Saves an invitation. It may be called until it succeeds, because the event keeps its id.
    pub(crate) async fn save(&self, invitation: &mut FamilyMemberInvitation) -> Result<(), Refused> {
        let mut work = UnitOfWork::new(&self.outbox, begin(&self.pool).await?);
        repository::add(&mut work, invitation).await?;
        work.commit(&mut [invitation]).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillarbox::testing::{Expected, assert_enqueued, assert_nothing_enqueued};
    use pillarbox_store::stores::sqlite::{Options, Sqlite, connect_options};

    /// A handler on its own SQLite file, and a family.
    async fn handler() -> (tempfile::TempDir, Handler, Uuid) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("test.db").to_string_lossy().into_owned();
        let store = Sqlite::create(&file).await.unwrap();
        store.migrate().await.unwrap();
        let options = connect_options(&file, &Options::default()).unwrap();
        let pool = SqlitePool::connect_with(options).await.unwrap();
        repository::create_tables(&pool).await.unwrap();
        let family = Uuid::now_v7();
        repository::create_family(&pool, family).await.unwrap();
        (folder, Handler::new(pool, Outbox::default()), family)
    }

    async fn enqueued(handler: &Handler) -> Vec<pillarbox::Event> {
        let mut connection = handler.pool.acquire().await.unwrap();
        handler.outbox.enqueued(&mut connection).await.unwrap()
    }

    #[tokio::test]
    async fn a_command_that_is_handled_twice_enqueues_one_event() {
        let (_folder, handler, family) = handler().await;
        let command = InviteFamilyMemberByEmail::new(family, "john@example.com", "Member", Uuid::now_v7());
        assert_eq!(handler.handle(&command).await.unwrap(), Invited::New);
        assert_eq!(handler.handle(&command).await.unwrap(), Invited::Already);
        let events = enqueued(&handler).await;
        assert_eq!(events.len(), 1);
        assert_enqueued(
            &events,
            &Expected::event_type("FamilyMemberInvitedEvent").version(1),
        );
        assert_eq!(repository::count(&handler.pool).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn a_refused_command_enqueues_no_event() {
        let (_folder, handler, family) = handler().await;
        let command = InviteFamilyMemberByEmail::new(family, "not-an-address", "Member", Uuid::now_v7());
        let refused = handler.handle(&command).await;
        assert!(matches!(refused, Err(Refused::NoAddress(_))), "{refused:?}");
        assert_nothing_enqueued(enqueued(&handler).await);
    }

    #[tokio::test]
    async fn a_failed_save_that_is_retried_enqueues_one_event() {
        let (_folder, handler, _) = handler().await;
        let late = Uuid::now_v7();
        let command = InviteFamilyMemberByEmail::new(late, "jane@example.com", "Admin", Uuid::now_v7());
        let mut invitation = command.to_invitation().unwrap();
        for _ in 0..3 {
            let refused = handler.save(&mut invitation).await;
            assert!(
                matches!(refused, Err(Refused::Commit(CommitError::Commit(_)))),
                "{refused:?}"
            );
            assert_nothing_enqueued(enqueued(&handler).await);
        }
        repository::create_family(&handler.pool, late).await.unwrap();
        handler.save(&mut invitation).await.unwrap();
        assert_eq!(enqueued(&handler).await.len(), 1);
    }
}
