//! Routes of adopted tables, from their `to`.

use std::collections::BTreeMap;

use pillarbox_dispatch::{OnDead, OneOf, Overrides, Pattern, Route as EngineRoute, Settings};
use pillarbox_store::stores::postgres::adopt::DeliveryOrder;

use super::adopt::Adopting;
use super::destinations::ParsedDestination;
use super::document::Document;
use super::resolve::{Names, Resolver};
use super::units::Texts;
use super::{Route, retry};

impl Resolver {
    /// Puts the routes of adopted tables before the others, because they are more specific.
    pub(super) fn with_adopted(
        &mut self,
        routes: Vec<Route>,
        adopted: &mut [Adopting],
        written: &[ParsedDestination],
        names: &Names,
        document: &Document<'_>,
    ) -> Vec<Route> {
        let mut all = Vec::new();
        for adopting in adopted.iter_mut() {
            let Adopting { to, path, .. } = &*adopting;
            self.known("destination", to, &names.destinations, path, document);
            if let Texts::None = adopting.to {
                match names.destinations.as_slice() {
                    // As for every event: without routes, the only destination receives all rows.
                    [only] if routes.is_empty() => adopting.to = Texts::One(only.clone()),
                    _ => {
                        self.check_by_hand(adopting, &routes, document);
                        continue;
                    }
                }
            }
            all.push(route(adopting, written, document));
        }
        let others = match names.destinations.as_slice() {
            [only] if routes.is_empty() && !all.is_empty() => Some(rest(only)),
            _ => None,
        };
        all.extend(routes);
        all.extend(others);
        all
    }

    /// Without `to`, the configuration must have a route.
    fn check_by_hand(&mut self, adopting: &Adopting, routes: &[Route], document: &Document<'_>) {
        let Adopting { adopt, path, .. } = adopting;
        if !routes.iter().any(|route| route.is_for(&adopt.database)) {
            let message = "no destination: set `to`, or write a [[route]]";
            self.wrong(document.place_of(path), message);
        }
        for key in ["retry", "on_dead"] {
            if adopt.places.contains_key(key) {
                let message = format!("`{key}` needs `to`; without `to`, set it in the [[route]]");
                self.wrong(document.place_of(&format!("{path}.{key}")), message);
            }
        }
    }

    /// Rows outside the scope are never delivered.
    pub(super) fn check_scope(&mut self, settings: &Settings, adopted: &[Adopting], document: &Document<'_>) {
        let Some(names) = settings.scope.names() else {
            return;
        };
        for Adopting { adopt, path, .. } in adopted {
            let table = &adopt.table;
            if table.layout.namespace.is_none() && !names.contains(&table.name) {
                let message = format!(
                    "its rows have the namespace `{}`, which is not in `dispatch.namespaces`: they would never be delivered",
                    table.name
                );
                self.wrong(document.place_of(path), message);
            }
        }
    }
}

/// The namespaces that its rows can have: those that they may name, and the table's name.
fn namespaces(adopting: &Adopting) -> OneOf {
    let table = &adopting.adopt.table;
    let named = table.speaks_for.namespaces.iter();
    let all = named
        .chain([&table.name])
        .map(|name| Pattern::from(name.as_str()));
    OneOf(all.collect())
}

fn route(adopting: &Adopting, written: &[ParsedDestination], document: &Document<'_>) -> Route {
    let namespaces = namespaces(adopting);
    let target = |name: &String| {
        let to = written.iter().find(|to| to.destination.name == *name)?;
        let own = retry::merge(&to.retry, adopting.retry.clone());
        Some(EngineRoute {
            namespace: namespaces.clone(),
            destination: name.clone(),
            overrides: Overrides {
                retry: adopting.has_retry.then(|| retry::policy(&own)),
                ..ordered(adopting, to)
            },
            ..EngineRoute::default()
        })
    };
    Route {
        databases: vec![adopting.adopt.database.clone()],
        targets: adopting.to.as_slice().iter().filter_map(target).collect(),
        places: document.places_in(&adopting.path),
    }
}

/// How rows that are delivered in order treat a failing one before them.
fn ordered(adopting: &Adopting, to: &ParsedDestination) -> Overrides {
    let order = adopting.adopt.table.layout.delivers_by();
    if order == DeliveryOrder::None {
        return Overrides::default();
    }
    // Other sinks do not keep the order of calls. Each row then waits for the confirmation of the one before.
    let keeps_order = matches!(to.destination.sink.kind(), "rabbitmq" | "kafka");
    Overrides {
        on_dead: Some(adopting.on_dead),
        first_attempts_only: Some(adopting.on_dead == OnDead::Continue),
        pipelined: (order == DeliveryOrder::Table && keeps_order).then_some(true),
        ..Overrides::default()
    }
}

/// The route of all other events, if there is only one destination.
fn rest(destination: &str) -> Route {
    Route {
        databases: Vec::new(),
        targets: vec![EngineRoute::to(destination)],
        places: BTreeMap::new(),
    }
}
