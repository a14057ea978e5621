//! Adopted tables: `[[adopt]]`.
//!
//! A layout is a built-in one with its overrides, or a whole description. It is compared with the table when a store
//! connects.

use std::time::Duration;

use pillarbox_dispatch::OnDead;
use pillarbox_store::retention::COPY;
use pillarbox_store::stores::postgres::adopt::{
    self, AdoptError, Delays, ErrorText, Habits, Layout, LayoutError, SpeaksFor, Status, Table,
};
use serde_json::Value;

use super::destinations::on_dead;
use super::document::{Document, Section};
use super::error::{Finding, Place};
use super::explain::{list, nearest};
use super::resolve::{Names, Resolver};
use super::units::{Attempts, Texts};
use super::{Adopt, Database, raw, retry};
use crate::database::DatabaseUrl;

/// A table to adopt, with what its routes need.
pub(super) struct Adopting {
    pub(super) adopt: Adopt,
    pub(super) to: Texts,
    /// The layout's own retry policy, with overrides.
    pub(super) retry: raw::Retry,
    /// Does it differ from the destination's policy?
    pub(super) has_retry: bool,
    /// What a failing or dead row means for the rows behind it, if rows are delivered in order.
    pub(super) on_dead: OnDead,
    /// How long the copies of its delivered rows are kept in the outbox, if that is shorter than others are.
    pub(super) keep_copies: Option<Duration>,
    pub(super) path: String,
}

impl Adopt {
    /// An error that only the database can find, with its line.
    pub(crate) fn finding(&self, error: &LayoutError) -> Finding {
        let key = match error {
            LayoutError::NoTable(_) => "table",
            LayoutError::NoColumn { key, .. } | LayoutError::Type { key, .. } => {
                key.split('.').next().unwrap_or(key)
            }
            LayoutError::Impossible(_) => "layout",
        };
        let place = [key, "layout", "table", "name"]
            .iter()
            .find_map(|key| self.places.get(*key));
        let message = format!("table `{}`: {error}", self.table.name);
        Finding::new(place.cloned().unwrap_or(Place::File), message)
    }
}

/// The line of the layout that was rejected. `None` for errors of the database.
pub(crate) fn finding<'a>(all: impl IntoIterator<Item = &'a Adopt>, error: &AdoptError) -> Option<Finding> {
    match error {
        AdoptError::Layout { name, error } => {
            let mut all = all.into_iter();
            let rejected = all.find(|adopt| adopt.table.name == *name)?;
            Some(rejected.finding(error))
        }
        AdoptError::Twice | AdoptError::Store(_) => None,
    }
}

impl Resolver {
    pub(super) fn adopted(
        &mut self,
        sections: Vec<Section<'_>>,
        databases: &[Database],
        names: &Names,
        document: &Document<'_>,
    ) -> Vec<Adopting> {
        let mut all: Vec<Adopting> = Vec::new();
        for section in sections {
            let path = section.path.clone();
            let Some(adopting) = self.adopting(section, databases, names, document) else {
                continue;
            };
            let clash = all.iter().find_map(|one| clash(&one.adopt, &adopting.adopt));
            if let Some((key, message)) = clash {
                self.wrong(document.place_of(&format!("{path}.{key}")), message);
            }
            all.push(adopting);
        }
        all
    }

    fn adopting(
        &mut self,
        mut section: Section<'_>,
        databases: &[Database],
        names: &Names,
        document: &Document<'_>,
    ) -> Option<Adopting> {
        let path = section.path.clone();
        let own = section.split(&raw::Adopt::KEYS);
        let raw: Option<raw::Adopt> = self.keep_all(document.read(own, &[]));
        let built_in = raw.as_ref().and_then(|raw| raw.layout.clone());
        let layout = self.layout(section, built_in.as_deref(), document);
        let (raw, mut layout) = (raw?, layout?);
        if let Some(stale) = raw.stale {
            layout.stale = Some(stale.0);
        }
        if let Some(delays) = &raw.delays {
            layout.delays = Delays(delays.iter().map(|span| span.0.as_secs()).collect());
        }
        let habits = built_in.as_deref().and_then(adopt::habits);
        let (retry, has_retry) = self.adopted_retry(&raw, habits.as_ref(), &mut layout, &path, document)?;
        let impossible = layout.check();
        self.keep(impossible.map_err(|error| Finding::new(document.place_of(&path), error.to_string())))?;
        let database = self.database_of(&raw, databases, names, &path, document)?;
        let table = self.table(&raw, layout, habits.as_ref(), &path, document);
        self.warn_unqualified(&table, &path, document);
        Some(Adopting {
            adopt: Adopt {
                database,
                layout: built_in,
                table,
                trusted_roles: raw.trusted_roles.as_slice().to_vec(),
                places: document.places_in(&path),
            },
            to: raw.to,
            retry,
            has_retry,
            on_dead: raw.on_dead.map_or(OnDead::Continue, on_dead),
            keep_copies: raw.keep_copies.map(|span| span.0),
            path,
        })
    }

    /// The built-in layout with its overrides, or the whole description.
    fn layout(
        &mut self,
        mut section: Section<'_>,
        built_in: Option<&str>,
        document: &Document<'_>,
    ) -> Option<Layout> {
        let path = section.path.clone();
        let Some(name) = built_in else {
            if section.keys().any(|key| key == "table") {
                return self.keep_all(document.read(section, &raw::Adopt::KEYS));
            }
            let message = format!(
                "the table is missing: set `layout` to one of {}, or describe the table with `table`, `id`, `payload` and \
                 `status` or `processed_at` (`pillarbox adopt` proposes a layout)",
                list(adopt::built_ins())
            );
            self.wrong(document.place_of(&path), message);
            return None;
        };
        let Some(known) = adopt::built_in(name) else {
            let hint = match nearest(name, adopt::built_ins().iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known are {}", list(adopt::built_ins())),
            };
            let place = document.place_of(&format!("{path}.layout"));
            self.wrong(place, format!("there is no layout `{name}`; {hint}"));
            return None;
        };
        let written: Vec<String> = section.keys().map(str::to_owned).collect();
        for (key, text) in [
            ("table", known.table.as_str()),
            ("id", &known.id),
            ("payload", "-"),
        ] {
            section.put_if_absent(key, text);
        }
        let own: Layout = self.keep_all(document.read(section, &raw::Adopt::KEYS))?;
        Some(merged(known, &own, &written))
    }

    /// The layout's own retry policy, with overrides. If only the counter shows that a row is dead, table and engine must have
    /// the same limit.
    fn adopted_retry(
        &mut self,
        raw: &raw::Adopt,
        habits: Option<&Habits>,
        layout: &mut Layout,
        path: &str,
        document: &Document<'_>,
    ) -> Option<(raw::Retry, bool)> {
        let own = self.valid_retry(raw.retry.clone(), &format!("{path}.retry"), document)?;
        let place = document.place_of(&format!("{path}.retry.max_attempts"));
        let only_counted = matches!(layout.status, Status::Processed) && layout.attempts.is_some();
        match own.max_attempts {
            Some(Attempts::AtMost(attempts)) => layout.max_attempts = Some(attempts),
            Some(Attempts::Unlimited) if only_counted => {
                self.wrong(
                    place,
                    "`max_attempts` needs a number: only the counter shows that a row is dead",
                );
                return None;
            }
            Some(Attempts::Unlimited) => layout.max_attempts = None,
            None => {}
        }
        let written = own != raw::Retry::default();
        let mut retry = match habits {
            Some(habits) => retry::merge(&retry::of(&habits.retry), own),
            None => own,
        };
        if let Some(attempts) = layout.max_attempts {
            retry.max_attempts = Some(Attempts::AtMost(attempts));
        }
        let has_retry = written || habits.is_some() || layout.max_attempts.is_some();
        Some((retry, has_retry))
    }

    fn database_of(
        &mut self,
        raw: &raw::Adopt,
        databases: &[Database],
        names: &Names,
        path: &str,
        document: &Document<'_>,
    ) -> Option<String> {
        let place = document.place_of(&format!("{path}.database"));
        let database = match &raw.database {
            None if names.databases.len() > 1 => {
                let all: Vec<&str> = names.databases.iter().map(String::as_str).collect();
                let message = format!("`database` is missing: use one of {}", list(&all));
                self.wrong(place, message);
                return None;
            }
            None => databases.first(),
            Some(name) => {
                let texts = Texts::One(name.clone());
                self.known("database", &texts, &names.databases, path, document);
                databases.iter().find(|it| it.name == *name)
            }
        }?;
        match database.url {
            DatabaseUrl::Postgres(_) => Some(database.name.clone()),
            DatabaseUrl::Sqlite(_) => {
                let message = format!(
                    "only PostgreSQL can adopt tables; database `{}` is a SQLite file",
                    database.name
                );
                self.wrong(place, message);
                None
            }
        }
    }

    fn table(
        &mut self,
        raw: &raw::Adopt,
        layout: Layout,
        habits: Option<&Habits>,
        path: &str,
        document: &Document<'_>,
    ) -> Table {
        let mut wrong = |key: &str, message: &str| {
            self.wrong(document.place_of(&format!("{path}.{key}")), message);
        };
        let (_, table_name) = layout.names();
        let name = raw.name.clone().or_else(|| raw.layout.clone());
        let name = name.unwrap_or_else(|| table_name.to_owned());
        if name.trim().is_empty() || name.contains(|c: char| c.is_control() || c == '*') {
            wrong("name", "`name` is invalid: use a name such as \"orders\"");
        }
        let poll = raw.poll.map(|span| span.0);
        if poll.is_some_and(|poll| poll.is_zero()) {
            wrong("poll", "`poll` must be longer than 0s");
        }
        if raw.batch == Some(0) {
            wrong("batch", "`batch` must be at least 1");
        }
        if let Some(Err(error)) = raw.prune.map(|_| layout.delivered_since()) {
            wrong("prune", &error.to_string());
        }
        if let Some(Err(error)) = raw.prune_dead.map(|_| layout.dead_since()) {
            wrong("prune_dead", &error.to_string());
        }
        if raw
            .prune_interval
            .is_some_and(|span| span.0 < raw::PRUNE_INTERVAL)
        {
            wrong("prune_interval", "`prune_interval` must be at least 1m");
        }
        if raw.keep_copies.is_some_and(|span| span.0 < COPY) {
            wrong(
                "keep_copies",
                "`keep_copies` must be at least 10m: others may still change the row",
            );
        }
        if raw.keep_copies.is_some() && layout.namespace.is_some() {
            let message =
                "`keep_copies` needs rows without namespaces of their own (use [[retention.namespace]])";
            wrong("keep_copies", message);
        }
        let speaks_for = self.speaks_for(raw, &layout, &name, path, document);
        Table {
            name,
            layout,
            poll: poll.or(habits.map(|habits| habits.poll)).unwrap_or(raw::POLL),
            batch: raw
                .batch
                .or(habits.map(|habits| habits.batch))
                .unwrap_or(raw::BATCH),
            prune: raw.prune.map(|span| span.0),
            prune_dead: raw.prune_dead.map(|span| span.0),
            prune_interval: raw.prune_interval.map_or(raw::PRUNE_INTERVAL, |span| span.0),
            speaks_for,
            error_text: match raw.error_text {
                Some(raw::ErrorText::Full) => ErrorText::Full,
                Some(raw::ErrorText::Status) | None => ErrorText::Status,
            },
        }
    }

    /// The namespaces and tenants that rows may name.
    fn speaks_for(
        &mut self,
        raw: &raw::Adopt,
        layout: &Layout,
        name: &str,
        path: &str,
        document: &Document<'_>,
    ) -> SpeaksFor {
        let mut wrong = |key: &str, message: String| {
            self.wrong(document.place_of(&format!("{path}.{key}")), message);
        };
        match (&layout.namespace, &raw.namespaces) {
            (Some(_), Texts::None) => wrong(
                "namespaces",
                "its rows have their own namespaces: say which ones they may name with `namespaces = [\"…\"]` (\"*\" only if \
                 its writers are trusted with all of them)"
                    .to_owned(),
            ),
            (None, Texts::One(_) | Texts::Many(_)) => wrong(
                "namespaces",
                format!("all its rows have the namespace `{name}`: remove `namespaces`"),
            ),
            (Some(_), Texts::One(_) | Texts::Many(_)) | (None, Texts::None) => {}
        }
        if layout.tenant_id.is_none() && raw.tenants != Texts::None {
            wrong(
                "tenants",
                "`tenants` needs a column with the tenant: name `tenant_id`".to_owned(),
            );
        }
        self.patterns("namespaces", &raw.namespaces, path, document);
        SpeaksFor {
            namespaces: raw.namespaces.as_slice().to_vec(),
            tenants: self.tenants("tenants", &raw.tenants, path, document),
        }
    }

    /// Without a schema, another role's table of that name may be found first.
    fn warn_unqualified(&mut self, table: &Table, path: &str, document: &Document<'_>) {
        if let (None, name) = table.layout.names() {
            let message = format!(
                "adopted table `{}`: `{name}` has no schema, so `search_path` chooses among tables of that name: write \
                 `table = \"schema.{name}\"`",
                table.name
            );
            let place = document.place_of(&format!("{path}.table"));
            self.warnings.push(Finding::new(place, message));
        }
    }
}

/// The built-in layout with the keys that are written. An empty string removes a column.
fn merged(known: Layout, own: &Layout, written: &[String]) -> Layout {
    let fields = |layout: &Layout| match serde_json::to_value(layout) {
        Ok(Value::Object(fields)) => fields,
        Ok(_) | Err(_) => serde_json::Map::new(),
    };
    let (mut all, own) = (fields(&known), fields(own));
    for key in written {
        match own.get(key) {
            Some(value) if value != "" => all.insert(key.clone(), value.clone()),
            Some(_) | None => all.remove(key),
        };
    }
    serde_json::from_value(Value::Object(all)).unwrap_or(known)
}

/// Why two tables exclude each other: the key, and what to do.
fn clash(one: &Adopt, other: &Adopt) -> Option<(&'static str, String)> {
    if one.database != other.database {
        return None;
    }
    let (a, b) = (&one.table, &other.table);
    if a.name == b.name {
        let message = format!(
            "there are two adopted tables named `{}`; give one another `name`",
            a.name
        );
        return Some(("name", message));
    }
    (a.layout.table == b.layout.table).then(|| {
        let message = format!(
            "`{}` and `{}` are the same table, {}; its rows would be sent twice",
            a.name, b.name, a.layout.table
        );
        ("table", message)
    })
}
