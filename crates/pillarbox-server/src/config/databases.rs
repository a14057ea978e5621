//! Reads `[database]`, or several `[[database]]`.

use super::document::Document;
use super::env::Overrides;
use super::error::{Finding, Place};
use super::resolve::{Resolver, names};
use super::{Database, raw};
use crate::database::DatabaseUrl;

/// The name of an only database without a name.
const ONLY: &str = "default";

impl Resolver {
    /// The valid databases, and the names of all. Errors of the others are noted.
    pub(super) fn databases(
        &mut self,
        document: &mut Document<'_>,
        overrides: &Overrides,
    ) -> (Vec<Database>, Vec<String>) {
        if !document.is_list("database") {
            let section = document.section("database");
            let Some(section) = self.keep(section) else {
                return (Vec::new(), Vec::new());
            };
            let name = section.text("name").unwrap_or(ONLY).to_owned();
            let only = self
                .keep_all(document.read::<raw::Database>(section, &[]))
                .and_then(|raw| self.database(raw, "database", document));
            return (only.into_iter().collect(), vec![name]);
        }
        self.reject_overrides(overrides);
        let sections = document.sections("database");
        let sections = self.keep(sections).unwrap_or_default();
        let names = names(&sections);
        let mut databases: Vec<Database> = Vec::new();
        for section in sections {
            let path = section.path.clone();
            let Some(raw) = self.keep_all(document.read::<raw::Database>(section, &[])) else {
                continue;
            };
            if raw.name.is_none() {
                self.wrong(document.place_of(&path), "missing key `name`");
            }
            let Some(database) = self.database(raw, &path, document) else {
                continue;
            };
            if let Some((key, message)) = databases.iter().find_map(|other| clash(other, &database)) {
                self.wrong(document.place_of(&format!("{path}.{key}")), message);
            }
            databases.push(database);
        }
        (databases, names)
    }

    /// Rejects `PILLARBOX_DATABASE_…` if several databases are configured: it is unclear which one is meant. A command with
    /// `--database` has used them already.
    fn reject_overrides(&mut self, overrides: &Overrides) {
        let meant_for_one = overrides
            .known
            .iter()
            .filter(|change| change.section == "database" && !overrides.database_is_chosen);
        for change in meant_for_one {
            // Only a URL may come from the environment there.
            let value = if change.key == "url" {
                " = { env = \"NAME\" }"
            } else {
                ""
            };
            let message = format!(
                "several databases are configured, and it is unclear which one this {key} is for (write \
                 `{key}{value}` under each [[database]])",
                key = change.key
            );
            self.wrong(Place::Outside(change.origin.clone()), message);
        }
    }

    fn database(&mut self, raw: raw::Database, path: &str, document: &Document<'_>) -> Option<Database> {
        let place = |key: &str| document.place_of(&format!("{path}.{key}"));
        let name = raw.name.unwrap_or_else(|| ONLY.to_owned());
        // `--database` takes a name, a URL or a path, so a name must not look like the others.
        if name.is_empty() || name.contains(|c: char| !c.is_alphanumeric() && !"-_".contains(c)) {
            self.wrong(
                place("name"),
                "`name` must consist of letters, digits, `-` and `_`, such as \"billing\"",
            );
        }
        let connections = raw.max_connections.unwrap_or(10);
        if connections < 2 {
            self.wrong(
                place("max_connections"),
                "`max_connections` must be at least 2: one to claim and one to settle",
            );
        }
        let Some(url) = raw.url else {
            let message = if path == "database" {
                "no database (write `url = \"postgres://…\"` or `url = \"sqlite://outbox.db\"` under [database], or set \
                 PILLARBOX_DATABASE_URL)"
            } else {
                "missing key `url`"
            };
            self.wrong(document.place_of(path), message);
            return None;
        };
        let revealed = url
            .reveal()
            .map_err(|error| Finding::new(place("url"), format!("`url` {error}")));
        let text = self.keep(revealed)?;
        let url = text
            .parse::<DatabaseUrl>()
            .map_err(|message| Finding::new(place("url"), message));
        let url = self.keep(url)?;
        if let Some(warning) = url.warning() {
            self.insecure.push(Finding::new(place("url"), warning));
        }
        Some(Database {
            name,
            url,
            schema: raw.schema.unwrap_or_else(|| "pillarbox".to_owned()),
            max_connections: connections,
        })
    }
}

/// Why two databases cannot both be served: the key and the error.
fn clash(one: &Database, other: &Database) -> Option<(&'static str, String)> {
    if one.name == other.name {
        let message = format!("duplicate database name `{}` (choose another)", one.name);
        return Some(("name", message));
    }
    let same_outbox = match (&one.url, &other.url) {
        (DatabaseUrl::Postgres(_), DatabaseUrl::Postgres(_)) => {
            one.url.identity() == other.url.identity() && one.schema == other.schema
        }
        (DatabaseUrl::Sqlite(_), DatabaseUrl::Sqlite(_)) => one.url.identity() == other.url.identity(),
        (DatabaseUrl::Postgres(_), DatabaseUrl::Sqlite(_))
        | (DatabaseUrl::Sqlite(_), DatabaseUrl::Postgres(_)) => false,
    };
    same_outbox.then(|| {
        let message = format!(
            "databases `{}` and `{}` are the same outbox (remove one, or set another `schema`)",
            one.name, other.name
        );
        ("url", message)
    })
}
