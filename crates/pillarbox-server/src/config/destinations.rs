//! Reads `[[destination]]`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pillarbox_dispatch::{OnDead, Policy, Rate, Settings};
use pillarbox_sinks::message::Upcasts;
use pillarbox_sinks::{SinkConfig, message};
use pillarbox_store::store::UNROUTED;

use super::document::{Document, Section};
use super::error::{Finding, Place};
use super::resolve::Resolver;
use super::{Destination, Route, raw, retry};

/// A destination with what its routes need.
pub(super) struct ParsedDestination {
    pub(super) destination: Destination,
    /// The schedule that a route's own one is merged with.
    pub(super) retry: raw::Retry,
    /// Its path in the document.
    pub(super) path: String,
}

impl ParsedDestination {
    /// The destination, when all routes are read.
    pub(super) fn finish(self) -> Destination {
        self.destination
    }
}

impl Resolver {
    pub(super) fn destinations(
        &mut self,
        sections: Vec<Section<'_>>,
        general: &raw::Retry,
        settings: &Settings,
        document: &Document<'_>,
    ) -> Vec<ParsedDestination> {
        if sections.is_empty() {
            self.wrong(
                Place::File,
                "no destination (add one, for example):\n  [[destination]]\n  name = \"log\"\n  type = \"log\"",
            );
        }
        let mut seen = BTreeSet::new();
        let mut all = Vec::new();
        for section in sections {
            let path = section.path.clone();
            let Some(written) = self.destination(section, general, settings, document) else {
                continue;
            };
            let name = &written.destination.name;
            if !seen.insert(name.clone()) {
                let message = format!("duplicate destination name `{name}` (choose another)");
                self.wrong(document.place_of(&format!("{path}.name")), message);
            }
            all.push(written);
        }
        all
    }

    /// Splits off the keys that all destinations have; the rest belongs to the sink.
    fn destination(
        &mut self,
        mut section: Section<'_>,
        general: &raw::Retry,
        settings: &Settings,
        document: &Document<'_>,
    ) -> Option<ParsedDestination> {
        let path = section.path.clone();
        let own = section.split(&raw::Destination::KEYS);
        let message = section.split(&message::Config::KEYS);
        let raw: Option<raw::Destination> = self.keep_all(document.read(own, &[]));
        let message: Option<message::Config> = self.keep_all(document.read(message, &[]));
        let shared = [&raw::Destination::KEYS[..], &message::Config::KEYS].concat();
        let sink: Option<SinkConfig> = self.keep_all(document.read(section, &shared));
        let (raw, message, sink) = (raw?, message?, sink?);
        let places = document.places_in(&path);
        self.check_name(&raw.name, &places);
        if raw.concurrency == Some(0) {
            self.wrong(at(&places, "concurrency"), "`concurrency` must be at least 1");
        }
        self.warn_without_bound(&sink, &places);
        let rate = self.rate(&raw, &places);
        let own = self.valid_retry(raw.retry, &format!("{path}.retry"), document)?;
        let retry = retry::merge(general, own);
        let exposed = sink.exposure();
        if let Some(error) = &exposed {
            let message = format!("destination `{}`: {error}", raw.name);
            self.insecure.push(Finding::new(at(&places, error.key), message));
        }
        let destination = Destination {
            name: raw.name,
            exposure: exposed.map(|error| error.to_string()),
            policy: Policy {
                retry: retry::policy(&retry),
                timeout: raw.timeout.map_or(settings.timeout, |span| span.0),
                on_dead: on_dead(raw.on_dead.unwrap_or(raw::OnDead::Block)),
                pipelined: raw.pipelined,
                first_attempts_only: false,
            },
            concurrency: raw.concurrency.unwrap_or_else(|| sink.default_concurrency()),
            rate,
            fair_by_tenant: match raw.fair_by {
                Some(raw::FairBy::Tenant) => true,
                None => false,
            },
            versions: raw.upcast,
            upcasts: Upcasts::default(),
            sink,
            message,
            places,
        };
        Some(ParsedDestination {
            destination,
            retry,
            path,
        })
    }

    /// A producer chooses a topic, a stream or a subject, also one that was never meant for events.
    fn warn_without_bound(&mut self, sink: &SinkConfig, places: &BTreeMap<String, Place>) {
        let Some(key) = sink.unbounded() else { return };
        let message = format!(
            "every event chooses its `{key}` (list what it may be in `allow`, such as [\"orders\", \"payments.*\"], or begin \
             `{key}` with a text)"
        );
        let place = if places.contains_key(key) { key } else { "type" };
        self.warnings.push(Finding::new(at(places, place), message));
    }

    fn check_name(&mut self, name: &str, places: &BTreeMap<String, Place>) {
        if name.trim().is_empty() || name.contains(char::is_control) {
            self.wrong(
                at(places, "name"),
                "`name` must not be empty; use for example \"billing\"",
            );
        }
        if name == UNROUTED {
            let message =
                format!("`{UNROUTED}` is reserved for events that no route matches (choose another name)");
            self.wrong(at(places, "name"), message);
        }
    }

    fn rate(&mut self, raw: &raw::Destination, places: &BTreeMap<String, Place>) -> Option<Rate> {
        let Some(rate) = raw.rate else {
            if raw.burst.is_some() {
                self.wrong(
                    at(places, "burst"),
                    "`burst` needs a `rate`, such as \"100/s\" (to limit attempts in flight, set `concurrency`)",
                );
            }
            return None;
        };
        rate.resolve(raw.burst)
            .map_err(|(key, message)| self.wrong(at(places, key), message))
            .ok()
    }

    /// If a lease is shorter than an attempt, two workers deliver the same event. A sink's own timeout must be as long as the
    /// longest one of its routes.
    pub(super) fn check_timeouts(
        &mut self,
        settings: &Settings,
        written: &mut [ParsedDestination],
        routes: &[Route],
    ) {
        for to in written.iter().map(|written| &written.destination) {
            // A destination without a timeout uses the general one, which is checked with the settings.
            if let Some(place) = to.places.get("timeout").cloned() {
                let whose = format!("destination `{}`: ", to.name);
                self.check_timeout(to.policy.timeout, settings, place, &whose);
            }
        }
        for route in routes {
            let own = route.targets.first().and_then(|target| target.overrides.timeout);
            if let Some(timeout) = own {
                self.check_timeout(timeout, settings, at(&route.places, "timeout"), "");
            }
        }
        for to in written.iter_mut().map(|written| &mut written.destination) {
            let targets = routes.iter().flat_map(|route| &route.targets);
            let longest = targets
                .filter(|target| target.destination == to.name)
                .filter_map(|target| target.overrides.timeout)
                .fold(to.policy.timeout, Duration::max);
            to.sink.set_timeout(longest);
        }
    }

    fn check_timeout(&mut self, timeout: Duration, settings: &Settings, place: Place, whose: &str) {
        if timeout.is_zero() {
            self.wrong(place, "`timeout` must be longer than 0");
        } else if settings.lease < timeout.saturating_mul(2) {
            let message = format!(
                "{whose}`dispatch.lease` ({}) must be at least twice its `timeout` ({})",
                humantime::format_duration(settings.lease),
                humantime::format_duration(timeout),
            );
            self.wrong(place, message);
        }
    }
}

/// The dispatcher's value.
pub(super) fn on_dead(raw: raw::OnDead) -> OnDead {
    match raw {
        raw::OnDead::Block => OnDead::Block,
        raw::OnDead::Continue => OnDead::Continue,
    }
}

fn at(places: &BTreeMap<String, Place>, key: &str) -> Place {
    places.get(key).cloned().unwrap_or(Place::File)
}
