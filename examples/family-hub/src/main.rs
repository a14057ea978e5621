//! Family Hub invites family members by e-mail, and publishes an event for each invitation.
//!
//! ```text
//! command handler ─▶ aggregate ─▶ repository ─▶ unit of work ─▶ outbox ─▶ dispatcher ─▶ family-hub.events
//!   invite.rs        invitation.rs  repository.rs   invite.rs                publisher.rs
//! ```
//!
//! The program invites two members. It sends the first command twice, and the first commit of the second command fails. Each
//! invitation is published exactly once.

mod invitation;
mod invite;
mod publisher;
mod repository;

use std::error::Error;

use pillarbox::{Outbox, Wake};
use pillarbox_store::stores::sqlite::{Options, Sqlite, connect_options};
use sqlx::SqlitePool;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::invite::{Handler, InviteFamilyMemberByEmail, Invited};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("family-hub.db").to_string_lossy().into_owned();
    let store = Sqlite::create(&file).await?;
    store.migrate().await?;
    let pool = SqlitePool::connect_with(connect_options(&file, &Options::default())?).await?;
    repository::create_tables(&pool).await?;

    let wake = Wake::default();
    let (dispatcher, mut published) = publisher::publisher(store, wake.clone())?;
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(dispatcher.run(shutdown.clone()));

    let handler = Handler::new(pool.clone(), Outbox::default());
    let (smiths, does, user) = (Uuid::now_v7(), Uuid::now_v7(), Uuid::now_v7());
    repository::create_family(&pool, smiths).await?;
    let john = InviteFamilyMemberByEmail::new(smiths, "john@example.com", "Member", user);
    let jane = InviteFamilyMemberByEmail::new(does, "jane@example.com", "Admin", user);

    handle(&handler, &john).await?;
    handle(&handler, &john).await?; // the user clicked twice
    invite_before_the_family_exists(&handler, &pool, &jane).await?;
    wake.notify();

    for _ in 0..2 {
        println!("{}", published.recv().await.ok_or("the publisher stopped")?);
    }
    shutdown.cancel();
    let done = running.await?;
    println!(
        "invitations {}, published {}",
        repository::count(&pool).await?,
        done.delivered
    );
    Ok(())
}

async fn handle(handler: &Handler, command: &InviteFamilyMemberByEmail) -> Result<(), Box<dyn Error>> {
    match handler.handle(command).await? {
        Invited::New => println!("{}: invited", command.email),
        Invited::Already => println!("{}: was invited before, no new event", command.email),
    }
    Ok(())
}

/// Another process creates the family too late. The first commit fails, and the second try commits the same invitation.
async fn invite_before_the_family_exists(
    handler: &Handler,
    pool: &SqlitePool,
    command: &InviteFamilyMemberByEmail,
) -> Result<(), Box<dyn Error>> {
    let mut invitation = command.to_invitation()?;
    while let Err(error) = handler.save(&mut invitation).await {
        println!("{}: {error}; the event is kept for the next try", command.email);
        repository::create_family(pool, command.family).await?;
    }
    println!("{}: invited at the second try", command.email);
    Ok(())
}
