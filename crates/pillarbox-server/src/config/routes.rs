//! Reads `[[route]]`.

use pillarbox_dispatch::{OneOf, Overrides, Pattern, Route as EngineRoute};
use uuid::Uuid;

use super::destinations::{ParsedDestination, on_dead};
use super::document::{Document, Section};
use super::error::Finding;
use super::explain::nearest;
use super::resolve::{Names, Resolver};
use super::units::Texts;
use super::{Route, raw, retry};

impl Resolver {
    pub(super) fn routes(
        &mut self,
        sections: Vec<Section<'_>>,
        written: &[ParsedDestination],
        names: &Names,
        document: &Document<'_>,
    ) -> Vec<Route> {
        let mut routes = Vec::new();
        for section in sections {
            let path = section.path.clone();
            let Some(raw) = self.keep_all(document.read::<raw::Route>(section, &[])) else {
                continue;
            };
            self.known("database", &raw.database, &names.databases, &path, document);
            self.known("destination", &raw.to, &names.destinations, &path, document);
            routes.extend(self.route(raw, &path, written, document));
        }
        routes
    }

    /// Reports unknown names.
    pub(super) fn known(
        &mut self,
        what: &str,
        texts: &Texts,
        names: &[String],
        path: &str,
        document: &Document<'_>,
    ) {
        let key = if what == "destination" { "to" } else { what };
        for (path, name) in texts.with_paths(&format!("{path}.{key}")) {
            if names.iter().any(|known| known == name) {
                continue;
            }
            let hint = nearest(name, names.iter().map(String::as_str))
                .map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"));
            self.wrong(document.place_of(&path), format!("unknown {what} `{name}`{hint}"));
        }
    }

    fn route(
        &mut self,
        raw: raw::Route,
        path: &str,
        written: &[ParsedDestination],
        document: &Document<'_>,
    ) -> Option<Route> {
        let mut one_of = |key: &str, texts: &Texts| self.patterns(key, texts, path, document);
        let conditions = EngineRoute {
            namespace: one_of("namespace", &raw.namespace),
            topic: one_of("topic", &raw.topic),
            event_type: one_of("event_type", &raw.event_type),
            aggregate_type: one_of("aggregate_type", &raw.aggregate_type),
            severity: one_of("severity", &raw.severity),
            tenant: self.tenants("tenant", &raw.tenant, path, document),
            ..EngineRoute::default()
        };
        let own = self.valid_retry(raw.retry.clone(), &format!("{path}.retry"), document)?;
        let target = |name: &String| {
            let to = written.iter().find(|to| to.destination.name == *name)?;
            let retry =
                (own != raw::Retry::default()).then(|| retry::policy(&retry::merge(&to.retry, own.clone())));
            Some(EngineRoute {
                destination: name.clone(),
                overrides: Overrides {
                    retry,
                    timeout: raw.timeout.map(|span| span.0),
                    on_dead: raw.on_dead.map(on_dead),
                    pipelined: raw.pipelined,
                    first_attempts_only: None,
                },
                ..conditions.clone()
            })
        };
        Some(Route {
            databases: raw.database.as_slice().to_vec(),
            targets: raw.to.as_slice().iter().filter_map(target).collect(),
            places: document.places_in(path),
        })
    }

    pub(super) fn patterns(
        &mut self,
        key: &str,
        texts: &Texts,
        path: &str,
        document: &Document<'_>,
    ) -> OneOf {
        let mut patterns = Vec::new();
        for (path, text) in texts.with_paths(&format!("{path}.{key}")) {
            let read = pattern(key, text).map_err(|message| Finding::new(document.place_of(&path), message));
            patterns.extend(self.keep(read));
        }
        OneOf(patterns)
    }

    pub(super) fn tenants(
        &mut self,
        key: &str,
        texts: &Texts,
        path: &str,
        document: &Document<'_>,
    ) -> Vec<Uuid> {
        let mut tenants = Vec::new();
        for (path, text) in texts.with_paths(&format!("{path}.{key}")) {
            let read = text.parse::<Uuid>().map_err(|_| {
                let message =
                    format!("`{key}`: `{text}` is not a UUID (remove `{key}` to match all tenants)");
                Finding::new(document.place_of(&path), message)
            });
            tenants.extend(self.keep(read));
        }
        tenants
    }
}

/// Rejects a star in other positions: it would match only itself, and the route would match nothing.
fn pattern(key: &str, text: &str) -> Result<Pattern, String> {
    let pattern = Pattern::from(text);
    match &pattern {
        Pattern::Exact(exact) if exact.contains('*') || exact.is_empty() => Err(format!(
            "`{key}`: invalid pattern `{text}` (use `*` for anything, `orders.*` for a prefix, or an exact name)"
        )),
        Pattern::Any | Pattern::Prefix(_) | Pattern::Exact(_) => Ok(pattern),
    }
}
