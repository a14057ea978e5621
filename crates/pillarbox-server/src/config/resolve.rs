//! From what was written to what is true. An impossible combination cannot be built.
//!
//! All that is wrong is found in one go, so that nobody mends a file one error at a time.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use pillarbox::{Limits, Scope};
use pillarbox_dispatch::{Pattern, Route, Settings};
use pillarbox_sinks::SinkConfig;

use super::document::{Document, Section};
use super::env::Overrides;
use super::error::{Finding, Place};
use super::{Config, Database, Destination, Http, raw, retry};
use crate::database::Target;

const SECTIONS: [&str; 7] = [
    "database",
    "dispatch",
    "retry",
    "limits",
    "http",
    "destination",
    "route",
];

/// What a resolved file gives: the configuration and what deserves a warning, or all that is wrong.
pub(super) type Resolved = Result<(Config, Vec<Finding>), Vec<Finding>>;

/// Reads a text under the environment's overrides.
pub(super) fn resolve(text: &str, overrides: &Overrides) -> Resolved {
    let mut document = Document::parse(text, overrides).map_err(|finding| vec![finding])?;
    let mut resolver = Resolver {
        wrong: document.only(&SECTIONS),
        warnings: Vec::new(),
    };
    for (variable, hint) in &overrides.unknown {
        resolver.warnings.push(Finding::new(
            Place::Outside(format!("environment variable {variable}")),
            hint,
        ));
    }
    let config = resolver.config(&mut document);
    resolver.wrong.sort_by(|a, b| a.place.cmp(&b.place));
    match config {
        Some(config) if resolver.wrong.is_empty() => Ok((config, resolver.warnings)),
        Some(_) | None => Err(resolver.wrong),
    }
}

struct Resolver {
    wrong: Vec<Finding>,
    warnings: Vec<Finding>,
}

impl Resolver {
    fn config(&mut self, document: &mut Document<'_>) -> Option<Config> {
        let database = self.section::<raw::Database>(document, "database");
        let dispatch = self.section::<raw::Dispatch>(document, "dispatch");
        let general = self.section::<raw::Retry>(document, "retry");
        let limits = self.section::<raw::Limits>(document, "limits");
        let http = self.section::<raw::Http>(document, "http");
        let destinations = document.sections("destination");
        let destinations = self.keep(destinations);
        let routes = document.sections("route");
        let routes = self.keep(routes);

        let database = database.and_then(|raw| self.database(raw, document));
        let http = http.and_then(|raw| self.http(raw, document));
        let general = general.and_then(|raw| self.valid_retry(raw, "retry", document));
        let settings = dispatch.map(|raw| settings(raw, general.as_ref()));
        let destinations = match (destinations, &general, &settings) {
            (Some(sections), Some(general), Some(settings)) => {
                Some(self.destinations(sections, general, settings, document))
            }
            _ => None,
        };
        if let (Some(settings), Some(destinations)) = (&settings, &destinations) {
            self.cross_check(settings, destinations, document);
        }
        let names = destinations
            .iter()
            .flatten()
            .map(|to: &Destination| to.name.as_str())
            .collect();
        let routes = routes.map(|sections| self.routes(sections, &names, document));
        Some(Config {
            database: database?,
            dispatch: settings?,
            limits: limits.map(|raw| Limits {
                payload: raw.max_payload.map_or(Limits::default().payload, |size| size.0),
            })?,
            http: http?,
            destinations: destinations?,
            routes: routes?,
        })
    }

    fn section<T: serde::de::DeserializeOwned>(
        &mut self,
        document: &mut Document<'_>,
        name: &str,
    ) -> Option<T> {
        let read = document
            .section(name)
            .and_then(|section| document.read(section, &[]));
        self.keep(read)
    }

    fn keep<T>(&mut self, result: Result<T, Finding>) -> Option<T> {
        result.map_err(|finding| self.wrong.push(finding)).ok()
    }

    fn wrong(&mut self, place: Place, message: impl Into<String>) {
        self.wrong.push(Finding::new(place, message));
    }

    fn database(&mut self, raw: raw::Database, document: &Document<'_>) -> Option<Database> {
        let Some(url) = raw.url else {
            self.wrong(
                document.place_of("database"),
                "no database is named; write `url = \"postgres://…\"` or `url = \"sqlite://outbox.db\"` under \
                 [database], or set PILLARBOX_DATABASE_URL",
            );
            return None;
        };
        let place = document.place_of("database.url");
        let revealed = url
            .reveal()
            .map_err(|error| Finding::new(place.clone(), format!("`url` {error}")));
        let text = self.keep(revealed)?;
        let target = text
            .parse::<Target>()
            .map_err(|message| Finding::new(place, message));
        let connections = raw.max_connections.unwrap_or(10);
        if connections < 2 {
            self.wrong(
                document.place_of("database.max_connections"),
                "`max_connections` must be at least 2: one to claim, one to settle",
            );
        }
        Some(Database {
            target: self.keep(target)?,
            schema: raw.schema.unwrap_or_else(|| "pillarbox".to_owned()),
            max_connections: connections,
        })
    }

    fn http(&mut self, raw: raw::Http, document: &Document<'_>) -> Option<Http> {
        let listen = raw.listen.as_deref().unwrap_or(super::LISTEN);
        let place = document.place_of("http.listen");
        let address = listen.parse::<SocketAddr>().map_err(|_| {
            let message = format!(
                "`{listen}` is no address; write an IP and a port, such as \"{}\"",
                super::LISTEN
            );
            Finding::new(place.clone(), message)
        });
        let http = Http {
            listen: self.keep(address)?,
            allow_remote: raw.allow_remote,
        };
        if let Err(message) = http.check() {
            self.wrong(place, message);
        }
        Some(http)
    }

    /// Says what is wrong with a retry table by itself; a policy is made of the merged ones.
    fn valid_retry(&mut self, raw: raw::Retry, path: &str, document: &Document<'_>) -> Option<raw::Retry> {
        let place = |key: &str| document.place_of(&format!("{path}.{key}"));
        if let Some((key, message)) = retry::mistake(&raw) {
            self.wrong(place(key), message);
            return None;
        }
        if let Some(message) = retry::warning(&raw) {
            self.warnings.push(Finding::new(place("max_attempts"), message));
        }
        Some(raw)
    }

    fn destinations(
        &mut self,
        sections: Vec<Section<'_>>,
        general: &raw::Retry,
        settings: &Settings,
        document: &Document<'_>,
    ) -> Vec<Destination> {
        if sections.is_empty() {
            self.wrong(
                Place::File,
                "there is no destination; add one, for example:\n  [[destination]]\n  name = \"log\"\n  type = \"log\"",
            );
        }
        let mut seen = BTreeSet::new();
        let mut destinations = Vec::new();
        for section in sections {
            let path = section.path.clone();
            let Some(destination) = self.destination(section, general, settings, document) else {
                continue;
            };
            if !seen.insert(destination.name.clone()) {
                let message = format!(
                    "there are two destinations named `{}`; names are unique",
                    destination.name
                );
                self.wrong(document.place_of(&format!("{path}.name")), message);
            }
            destinations.push(destination);
        }
        destinations
    }

    /// The keys that all destinations share are split off; the rest belongs to the sink.
    fn destination(
        &mut self,
        mut section: Section<'_>,
        general: &raw::Retry,
        settings: &Settings,
        document: &Document<'_>,
    ) -> Option<Destination> {
        let path = section.path.clone();
        let shared = section.split(&raw::Destination::KEYS);
        let raw: Option<raw::Destination> = self.keep(document.read(shared, &[]));
        let sink: Option<SinkConfig> = self.keep(document.read(section, &raw::Destination::KEYS));
        let (raw, mut sink) = (raw?, sink?);
        if raw.name.trim().is_empty() || raw.name.contains(char::is_control) {
            self.wrong(
                document.place_of(&format!("{path}.name")),
                "`name` must say something, such as \"billing\"",
            );
        }
        if raw.concurrency == Some(0) {
            self.wrong(
                document.place_of(&format!("{path}.concurrency")),
                "`concurrency` must be at least 1",
            );
        }
        let own = self.valid_retry(raw.retry, &format!("{path}.retry"), document)?;
        let timeout = raw.timeout.map_or(settings.timeout, |span| span.0);
        sink.set_timeout(timeout);
        Some(Destination {
            name: raw.name,
            timeout,
            places: document.places_in(&path),
            concurrency: raw.concurrency.unwrap_or_else(|| sink.default_concurrency()),
            retry: retry::policy(&retry::merge(general, own)),
            sink,
        })
    }

    /// A lease shorter than an attempt means that two workers deliver the same event.
    fn cross_check(&mut self, settings: &Settings, destinations: &[Destination], document: &Document<'_>) {
        if let Err(error) = settings.validate() {
            let path = format!("dispatch.{}", error.field);
            self.wrong(document.place_of(&path), format!("`{path}` {}", error.message));
        }
        for to in destinations {
            // One that it did not write itself is the general one, which was checked above.
            let Some(place) = to.places.get("timeout").cloned() else {
                continue;
            };
            if to.timeout.is_zero() {
                self.wrong(place, "`timeout` must be longer than nothing");
            } else if settings.lease < to.timeout.saturating_mul(2) {
                let message = format!(
                    "destination `{}`: `dispatch.lease` ({}) must be at least twice its `timeout` ({})",
                    to.name,
                    humantime::format_duration(settings.lease),
                    humantime::format_duration(to.timeout),
                );
                self.wrong(place, message);
            }
        }
    }

    fn routes(
        &mut self,
        sections: Vec<Section<'_>>,
        names: &BTreeSet<&str>,
        document: &Document<'_>,
    ) -> Vec<Route> {
        let mut routes = Vec::new();
        for section in sections {
            let path = section.path.clone();
            let Some(raw) = self.keep(document.read::<raw::Route>(section, &[])) else {
                continue;
            };
            // Where a destination could not be read, a route to it is not wrong for that.
            if !names.contains(raw.to.as_str()) && self.wrong.is_empty() {
                let hint = super::explain::nearest(&raw.to, names.iter().copied())
                    .map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
                let message = format!("there is no destination `{}`{hint}", raw.to);
                self.wrong(document.place_of(&format!("{path}.to")), message);
            }
            let mut pattern = |key: &str, text: Option<String>| {
                let read = pattern(key, text.as_deref().unwrap_or("*"));
                let read = read
                    .map_err(|message| Finding::new(document.place_of(&format!("{path}.{key}")), message));
                self.keep(read).unwrap_or_default()
            };
            routes.push(Route {
                namespace: pattern("namespace", raw.namespace),
                topic: pattern("topic", raw.topic),
                event_type: pattern("event_type", raw.event_type),
                destination: raw.to,
            });
        }
        routes
    }
}

/// A star elsewhere would be taken for itself, and the route would match nothing.
fn pattern(key: &str, text: &str) -> Result<Pattern, String> {
    let pattern = Pattern::from(text);
    match &pattern {
        Pattern::Exact(exact) if exact.contains('*') || exact.is_empty() => Err(format!(
            "`{key}`: `{text}` is no pattern; write `*` for anything, `orders.*` for what begins with \"orders.\", or \
             the name itself"
        )),
        Pattern::Any | Pattern::Prefix(_) | Pattern::Exact(_) => Ok(pattern),
    }
}

fn settings(raw: raw::Dispatch, general: Option<&raw::Retry>) -> Settings {
    let default = Settings::default();
    let max_attempts = general.and_then(|general| retry::policy(general).limit());
    Settings {
        lease: raw.lease.map_or(default.lease, |span| span.0),
        timeout: raw.timeout.map_or(default.timeout, |span| span.0),
        poll_interval: raw.poll_interval.map_or(default.poll_interval, |span| span.0),
        batch: raw.batch.unwrap_or(default.batch),
        max_in_flight: raw.max_in_flight.unwrap_or(default.max_in_flight),
        max_bytes: raw.max_bytes.map_or(default.max_bytes, |size| size.0),
        grace: raw.grace.map_or(default.grace, |span| span.0),
        scope: Scope::of(raw.namespaces),
        max_attempts: max_attempts.unwrap_or(u32::MAX),
        ..default
    }
}
