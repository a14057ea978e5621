//! Stores invitations in the caller's transaction. The unit of work commits it.

use sqlx::{SqliteConnection, SqlitePool};
use uuid::Uuid;

use crate::invitation::FamilyMemberInvitation;

/// The foreign key is checked at the commit, so an invitation to a missing family fails there.
pub(crate) async fn create_tables(pool: &SqlitePool) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(
        "create table families (id text primary key);
         create table family_member_invitations (
           id text primary key,
           family text not null references families (id) deferrable initially deferred,
           email text not null,
           role text not null,
           token text not null,
           expires_at integer not null,
           unique (family, email)
         );",
    )
    .execute(pool)
    .await?;
    Ok(())
}

pub(crate) async fn create_family(pool: &SqlitePool, family: Uuid) -> Result<(), sqlx::Error> {
    sqlx::query("insert into families (id) values (?)")
        .bind(family.to_string())
        .execute(pool)
        .await?;
    Ok(())
}

pub(crate) async fn is_invited(
    connection: &mut SqliteConnection,
    family: Uuid,
    email: &str,
) -> Result<bool, sqlx::Error> {
    let found = sqlx::query("select 1 from family_member_invitations where family = ? and email = ?")
        .bind(family.to_string())
        .bind(email)
        .fetch_optional(connection)
        .await?;
    Ok(found.is_some())
}

/// Adds an invitation. Adding it again has no effect, because the answer to the first commit may have been lost.
pub(crate) async fn add(
    connection: &mut SqliteConnection,
    invitation: &FamilyMemberInvitation,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "insert into family_member_invitations (id, family, email, role, token, expires_at)
         values (?, ?, ?, ?, ?, ?) on conflict (id) do nothing",
    )
    .bind(invitation.id.to_string())
    .bind(invitation.family.to_string())
    .bind(&invitation.email)
    .bind(&invitation.role)
    .bind(&invitation.token)
    .bind(invitation.expires_at.unix_timestamp())
    .execute(connection)
    .await?;
    Ok(())
}

pub(crate) async fn count(pool: &SqlitePool) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar("select count(*) from family_member_invitations")
        .fetch_one(pool)
        .await
}
