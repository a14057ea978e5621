//! Which databases are served: `[database]`, or several `[[database]]`.

use super::document::Document;
use super::env::Overrides;
use super::error::{Finding, Place};
use super::resolve::Resolver;
use super::{Database, raw};
use crate::database::Target;

/// What the only database is called if nobody gave it a name.
const ONLY: &str = "default";

impl Resolver {
    /// Those that can be used; what is wrong with the others is noted.
    pub(super) fn databases(&mut self, document: &mut Document<'_>, overrides: &Overrides) -> Vec<Database> {
        if !document.is_list("database") {
            let read = document
                .section("database")
                .and_then(|section| document.read::<raw::Database>(section, &[]));
            let only = self
                .keep(read)
                .and_then(|raw| self.database(raw, "database", document));
            return only.into_iter().collect();
        }
        self.refuse_overrides(overrides);
        let sections = document.sections("database");
        let mut databases: Vec<Database> = Vec::new();
        for section in self.keep(sections).unwrap_or_default() {
            let path = section.path.clone();
            let Some(raw) = self.keep(document.read::<raw::Database>(section, &[])) else {
                continue;
            };
            if raw.name.is_none() {
                self.wrong(document.place_of(&path), "the key `name` is missing");
            }
            let Some(database) = self.database(raw, &path, document) else {
                continue;
            };
            if let Some((key, message)) = databases.iter().find_map(|other| clash(other, &database)) {
                self.wrong(document.place_of(&format!("{path}.{key}")), message);
            }
            databases.push(database);
        }
        databases
    }

    /// Which of several would be meant, nobody could tell. A command that names its database itself has used them.
    fn refuse_overrides(&mut self, overrides: &Overrides) {
        let meant_for_one = overrides
            .known
            .iter()
            .filter(|change| change.section == "database" && !overrides.database_is_chosen);
        for change in meant_for_one {
            let message = format!(
                "which of the databases should have this {key}? Write `{key} = {{ env = \"NAME\" }}` under each                  [[database]] instead",
                key = change.key
            );
            self.wrong(Place::Outside(change.source.clone()), message);
        }
    }

    fn database(&mut self, raw: raw::Database, path: &str, document: &Document<'_>) -> Option<Database> {
        let place = |key: &str| document.place_of(&format!("{path}.{key}"));
        let name = raw.name.unwrap_or_else(|| ONLY.to_owned());
        // On the command line a name stands where a URL or a path may stand too.
        if name.is_empty() || name.contains(|c: char| !c.is_alphanumeric() && !"-_".contains(c)) {
            self.wrong(
                place("name"),
                "`name` must be letters, digits, `-` and `_`, such as \"billing\"",
            );
        }
        let Some(url) = raw.url else {
            let message = if path == "database" {
                "no database is named; write `url = \"postgres://…\"` or `url = \"sqlite://outbox.db\"` under \
                 [database], or set PILLARBOX_DATABASE_URL"
            } else {
                "the key `url` is missing"
            };
            self.wrong(document.place_of(path), message);
            return None;
        };
        let revealed = url
            .reveal()
            .map_err(|error| Finding::new(place("url"), format!("`url` {error}")));
        let text = self.keep(revealed)?;
        let target = text
            .parse::<Target>()
            .map_err(|message| Finding::new(place("url"), message));
        let connections = raw.max_connections.unwrap_or(10);
        if connections < 2 {
            self.wrong(
                place("max_connections"),
                "`max_connections` must be at least 2: one to claim, one to settle",
            );
        }
        Some(Database {
            name,
            target: self.keep(target)?,
            schema: raw.schema.unwrap_or_else(|| "pillarbox".to_owned()),
            max_connections: connections,
        })
    }
}

/// Why two cannot both be served: the key, and what to do.
fn clash(one: &Database, other: &Database) -> Option<(&'static str, String)> {
    if one.name == other.name {
        let message = format!("there are two databases named `{}`; names are unique", one.name);
        return Some(("name", message));
    }
    let same_outbox = match (&one.target, &other.target) {
        (Target::Postgres(_), Target::Postgres(_)) => {
            one.target.place() == other.target.place() && one.schema == other.schema
        }
        (Target::Sqlite(_), Target::Sqlite(_)) => one.target.place() == other.target.place(),
        (Target::Postgres(_), Target::Sqlite(_)) | (Target::Sqlite(_), Target::Postgres(_)) => false,
    };
    same_outbox.then(|| {
        let message = format!(
            "the databases `{}` and `{}` are the same outbox; remove one, or name another `schema`",
            one.name, other.name
        );
        ("url", message)
    })
}
