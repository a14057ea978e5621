//! Turns the written keys into a valid configuration. An invalid combination cannot be built.
//!
//! It reports all errors at once, so that the operator fixes the file in one go. The rules of a section are in their own files:
//! `databases`, `destinations`, `routes`, `upcasts`, `adopt`.

use std::net::SocketAddr;

use pillarbox::Limits;
use pillarbox_dispatch::{Settings, Unrouted, WakeBy};
use pillarbox_store::Scope;

use super::destinations::ParsedDestination;
use super::document::{Document, Section};
use super::env::Overrides;
use super::error::{Finding, Place};
use super::retention::shorten;
use super::security::FileMode;
use super::{Config, Database, Http, Route, raw, retry};

const SECTIONS: [&str; 11] = [
    "database",
    "dispatch",
    "retry",
    "retention",
    "limits",
    "http",
    "security",
    "destination",
    "route",
    "upcast",
    "adopt",
];

/// A configuration with its errors and warnings. With errors it has the sections that are valid, and defaults for others.
pub(super) struct Resolved {
    pub(super) config: Config,
    pub(super) wrong: Vec<Finding>,
    pub(super) warnings: Vec<Finding>,
}

/// Reads a text with the overrides of environment and command line.
///
/// # Errors
/// When it is not TOML.
pub(super) fn resolve(text: &str, overrides: &Overrides, mode: FileMode) -> Result<Resolved, Finding> {
    let mut document = Document::parse(text, overrides)?;
    let mut resolver = Resolver {
        wrong: document.only(&SECTIONS),
        warnings: Vec::new(),
        insecure: Vec::new(),
    };
    resolver.check_file(mode, &document);
    resolver.check_secret_files(&document);
    for (variable, hint) in &overrides.unknown {
        resolver.warnings.push(Finding::new(
            Place::Outside(format!("environment variable {variable}")),
            hint,
        ));
    }
    let config = resolver.config(&mut document, overrides);
    resolver.apply_strict(config.strict);
    Ok(Resolved {
        config,
        wrong: resolver.wrong,
        warnings: resolver.warnings,
    })
}

/// The names that routes and adopted tables may use, also those of sections with errors.
pub(super) struct Names {
    pub(super) databases: Vec<String>,
    pub(super) destinations: Vec<String>,
}

/// What was found so far.
pub(super) struct Resolver {
    pub(super) wrong: Vec<Finding>,
    pub(super) warnings: Vec<Finding>,
    /// What is unencrypted or readable by others.
    pub(super) insecure: Vec<Finding>,
}

impl Resolver {
    fn config(&mut self, document: &mut Document<'_>, overrides: &Overrides) -> Config {
        let (databases, database_names) = self.databases(document, overrides);
        let dispatch = self.section::<raw::Dispatch>(document, "dispatch");
        let general = self.section::<raw::Retry>(document, "retry");
        let retention = self.section::<raw::Retention>(document, "retention");
        let limits = self.section::<raw::Limits>(document, "limits");
        let http = self.section::<raw::Http>(document, "http");
        // An unreadable section is an error anyway.
        let security = self.section::<raw::Security>(document, "security");
        let destinations = document.sections("destination");
        let destinations = self.keep(destinations);
        let routes = document.sections("route");
        let routes = self.keep(routes).unwrap_or_default();
        let adopted = document.sections("adopt");
        let adopted = self.keep(adopted).unwrap_or_default();
        let upcasts = document.sections("upcast");
        let upcasts = self.keep(upcasts).unwrap_or_default();
        let names = Names {
            databases: database_names,
            destinations: names(destinations.as_deref().unwrap_or_default()),
        };

        let http = http.and_then(|raw| self.http(raw, document));
        let general = general.and_then(|raw| self.valid_retry(raw, "retry", document));
        let raw_retention = retention.unwrap_or_default();
        let retention = self.retention(&raw_retention, document);
        let settings = dispatch.map(|raw| Settings {
            prune_interval: raw_retention
                .interval
                .map_or(Settings::default().prune_interval, |span| span.0),
            prune_batch: raw_retention.batch.unwrap_or(Settings::default().prune_batch),
            retention,
            ..settings(raw, general.as_ref())
        });
        if let Some(settings) = &settings {
            self.check_settings(settings, document);
        }
        // A section that could not be read is reported already; its defaults serve to check the rest.
        let general = general.unwrap_or_default();
        let used = settings.clone().unwrap_or_default();
        let mut written = destinations.map_or_else(Vec::new, |sections| {
            self.destinations(sections, &general, &used, document)
        });
        let steps = self.upcasts(upcasts, &mut written, document);
        let all_routes = routes.len() + adopted.len();
        let routes = self.routes(routes, &written, &names, document);
        let mut adopted = self.adopted(adopted, &databases, &names, document);
        // With an unreadable route, or one for a misspelt database, the absence of a route proves nothing.
        let mut named = routes.iter().flat_map(|route| &route.databases);
        let all_read =
            routes.len() + adopted.len() == all_routes && named.all(|name| names.databases.contains(name));
        let written_routes = routes.len();
        let routes = self.with_adopted(routes, &mut adopted, &written, &names, document);
        if let Some(settings) = &settings {
            self.check_timeouts(settings, &mut written, &routes);
            self.check_scope(settings, &adopted, document);
        }
        if all_read {
            self.check_coverage(&databases, &routes, document);
            self.warn_without_routes(&names, &routes, used.unrouted, document);
        }
        let mut used = used;
        for adopting in &adopted {
            shorten(
                &mut used.retention,
                &adopting.adopt.table.name,
                adopting.keep_copies,
            );
        }
        let payload = limits.and_then(|raw| raw.max_payload);
        Config {
            databases,
            dispatch: used,
            limits: payload.map_or_else(Limits::default, |size| Limits { payload: size.0 }),
            http: http.unwrap_or_default(),
            strict: security.unwrap_or_default().strict,
            destinations: written.into_iter().map(ParsedDestination::finish).collect(),
            routes,
            written_routes,
            upcasts: steps,
            adopt: adopted.into_iter().map(|adopting| adopting.adopt).collect(),
            archive: raw_retention.archive,
        }
    }

    fn section<T: serde::de::DeserializeOwned>(
        &mut self,
        document: &mut Document<'_>,
        name: &str,
    ) -> Option<T> {
        let section = document.section(name);
        self.keep(section)
            .and_then(|section| self.keep_all(document.read(section, &[])))
    }

    pub(super) fn keep<T>(&mut self, result: Result<T, Finding>) -> Option<T> {
        result.map_err(|finding| self.wrong.push(finding)).ok()
    }

    pub(super) fn keep_all<T>(&mut self, result: Result<T, Vec<Finding>>) -> Option<T> {
        result.map_err(|findings| self.wrong.extend(findings)).ok()
    }

    pub(super) fn wrong(&mut self, place: Place, message: impl Into<String>) {
        self.wrong.push(Finding::new(place, message));
    }

    fn http(&mut self, raw: raw::Http, document: &Document<'_>) -> Option<Http> {
        let place = document.place_of("http.listen");
        let address = |text: &str, place: &Place| {
            text.parse::<SocketAddr>().map_err(|_| {
                let message = format!(
                    "invalid address `{text}` (use an IP and a port, such as \"{}\")",
                    super::LISTEN
                );
                Finding::new(place.clone(), message)
            })
        };
        let listen = address(raw.listen.as_deref().unwrap_or(super::LISTEN), &place);
        let ops_place = document.place_of("http.ops_listen");
        let ops_listen = raw.ops_listen.as_deref().map(|text| address(text, &ops_place));
        for host in raw
            .hosts
            .iter()
            .filter(|host| host.is_empty() || host.contains([':', '/', '*']))
        {
            let message =
                format!("invalid name `{host}` (write it without a port, such as \"pillarbox.example.com\")");
            self.wrong(document.place_of("http.hosts"), message);
        }
        let http = Http {
            listen: self.keep(listen)?,
            allow_remote: raw.allow_remote,
            hosts: raw.hosts,
            ops_listen: self.keep(ops_listen.transpose())?,
        };
        if let Err(message) = http.check() {
            self.wrong(place, message);
        }
        if let Err(message) = http.check_ops() {
            self.wrong(ops_place, message);
        }
        self.check_remote(&http, document);
        Some(http)
    }

    /// Checks one retry table. The policy is made from the merged ones.
    pub(super) fn valid_retry(
        &mut self,
        raw: raw::Retry,
        path: &str,
        document: &Document<'_>,
    ) -> Option<raw::Retry> {
        let place = |key: &str| document.place_of(&format!("{path}.{key}"));
        let mistakes = retry::mistakes(&raw);
        for (key, message) in &mistakes {
            self.wrong(place(key), *message);
        }
        if !mistakes.is_empty() {
            return None;
        }
        if let Some(message) = retry::warning(&raw) {
            self.warnings.push(Finding::new(place("max_attempts"), message));
        }
        Some(raw)
    }

    fn check_settings(&mut self, settings: &Settings, document: &Document<'_>) {
        for error in settings.errors() {
            let path = match error.field.strip_prefix("prune_") {
                Some(key) => format!("retention.{key}"),
                None => format!("dispatch.{}", error.field),
            };
            self.wrong(document.place_of(&path), format!("`{path}` {}", error.message));
        }
    }

    /// Every database needs a route: otherwise all its events would be unrouted.
    fn check_coverage(&mut self, databases: &[Database], routes: &[Route], document: &Document<'_>) {
        if routes.is_empty() {
            return;
        }
        for (index, database) in databases.iter().enumerate() {
            if routes.iter().any(|route| route.is_for(&database.name)) {
                continue;
            }
            let message = format!(
                "no route for database `{}`: every route names another (add one, or remove `database` from one)",
                database.name
            );
            self.wrong(document.place_of(&format!("database.{index}")), message);
        }
    }

    /// Without routes only a single destination gets events that name none.
    fn warn_without_routes(
        &mut self,
        names: &Names,
        routes: &[Route],
        unrouted: Unrouted,
        document: &Document<'_>,
    ) {
        let count = names.destinations.len();
        if count < 2 || !routes.is_empty() {
            return;
        }
        let fate = match unrouted {
            Unrouted::Hold => "are held as unrouted",
            Unrouted::Delete => "are deleted",
            Unrouted::Dead => "become dead",
        };
        let message = format!(
            "{count} destinations and no [[route]]: events that name no destination {fate} (add a [[route]])"
        );
        let place = document.place_of("destination.1");
        self.warnings.push(Finding::new(place, message));
    }
}

/// The names of these sections, valid or not.
pub(super) fn names(sections: &[Section<'_>]) -> Vec<String> {
    let names = sections.iter().filter_map(|section| section.text("name"));
    names.map(str::to_owned).collect()
}

fn settings(raw: raw::Dispatch, general: Option<&raw::Retry>) -> Settings {
    let default = Settings::default();
    let max_attempts = general.and_then(|general| retry::policy(general).limit());
    Settings {
        lease: raw.lease.map_or(default.lease, |span| span.0),
        timeout: raw.timeout.map_or(default.timeout, |span| span.0),
        wake: match raw.wake {
            None => default.wake,
            Some(raw::WakeBy::Server) => WakeBy::Server,
            Some(raw::WakeBy::Poll) => WakeBy::Poll,
        },
        poll_interval: raw.poll_interval.map_or(default.poll_interval, |span| span.0),
        batch: raw.batch.unwrap_or(default.batch),
        max_in_flight: raw.max_in_flight.unwrap_or(default.max_in_flight),
        max_bytes: raw.max_bytes.map_or(default.max_bytes, |size| size.0),
        grace: raw.grace.map_or(default.grace, |span| span.0),
        sweep_interval: raw.sweep_interval.map_or(default.sweep_interval, |span| span.0),
        scope: Scope::configured(raw.namespaces),
        max_attempts: max_attempts.unwrap_or(u32::MAX),
        lane_ranges: raw.lane_ranges.unwrap_or(default.lane_ranges),
        unrouted: match raw.unrouted {
            None => default.unrouted,
            Some(raw::Unrouted::Hold) => Unrouted::Hold,
            Some(raw::Unrouted::Delete) => Unrouted::Delete,
            Some(raw::Unrouted::Dead) => Unrouted::Dead,
        },
        heartbeat: raw.heartbeat.map_or(default.heartbeat, |span| span.0),
        ..default
    }
}
