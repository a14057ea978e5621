//! Who else can act as the daemon in its database: everybody, if its role is a superuser, and the owners of code that an adopted
//! table runs.
//!
//! Each is a warning at start and in `config check --connect`. With `[security] strict` it is an error.

use pillarbox::StoreError;

use crate::config;
use crate::database::Database;

/// Something that runs with the rights of the daemon's role, or lets it do too much.
pub(crate) struct Distrust {
    /// The adopted table, if it is about one.
    pub(crate) table: Option<String>,
    /// What it is, and what to do.
    pub(crate) reason: String,
}

impl Distrust {
    /// One line, with the table.
    pub(crate) fn line(&self) -> String {
        match &self.table {
            Some(table) => format!("table {table}: {}", self.reason),
            None => self.reason.clone(),
        }
    }
}

/// All lines of a refusal by `strict`.
pub(crate) fn refusal(found: &[Distrust]) -> String {
    refused(found.iter().map(Distrust::line))
}

/// The same, of one table or of none, whose name stands before it already.
pub(crate) fn refusal_of_one(found: &[Distrust]) -> String {
    refused(found.iter().map(|it| it.reason.clone()))
}

fn refused(lines: impl Iterator<Item = String>) -> String {
    let lines = lines.map(|line| format!("{line}; {}", config::REFUSED_BY_STRICT));
    lines.collect::<Vec<_>>().join("\n")
}

/// Is the daemon's role confined to its duty?
pub(crate) async fn role(database: &Database) -> Result<Vec<Distrust>, StoreError> {
    let distrust = |why| Distrust {
        table: None,
        reason: format!(
            "no grant confines the database role: {why} (let the daemon log in as a dispatcher: pillarbox grant dispatcher ROLE)"
        ),
    };
    Ok(database.unbound().await?.into_iter().map(distrust).collect())
}

/// What other roles can run by way of this table.
pub(crate) async fn table(database: &Database, adopt: &config::Adopt) -> Result<Vec<Distrust>, StoreError> {
    let found = database
        .foreign_code(&adopt.table.layout, &adopt.trusted_roles)
        .await?;
    let distrust = |code| Distrust {
        table: Some(adopt.table.layout.table.clone()),
        reason: format!(
            "{code}: this runs with the rights of Pillarbox's role (name whom you trust in `trusted_roles`: \
             docs/adopt.md#whom-you-trust)"
        ),
    };
    Ok(found.into_iter().map(distrust).collect())
}
