//! Which routes an event has to be compared with. Pure.
//!
//! Each route is filed under one of its conditions: a tenant, an exact text or a prefix. An event looks up its own values and
//! meets only routes that are filed under one of them. So ten thousand routes of ten thousand tenants cost about what
//! ten do. A route is filed under the condition that it shares with the fewest others. Routes without such a
//! condition are compared with every event.

use std::collections::HashMap;

use pillarbox::Event;
use uuid::Uuid;

use crate::route::route_table::{OneOf, Pattern, Route};

/// With so few routes, comparing is quicker than looking up.
const FEW: usize = 8;

/// Routes, by their index in the table.
type Places = Vec<usize>;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct RouteIndex {
    tenants: HashMap<Uuid, Places>,
    texts: [Texts; FIELDS.len()],
    others: Places,
}

/// The conditions on one field.
#[derive(Debug, Default)]
struct Texts {
    exact: HashMap<String, Places>,
    /// Prefixes that end with a dot, as all do that are written as `orders.*`.
    prefix: HashMap<String, Places>,
}

/// A field with text: how a route and how an event has it.
struct Field {
    condition: fn(&Route) -> &OneOf,
    value: fn(&Event) -> Option<&str>,
}

const FIELDS: [Field; 5] = [
    Field {
        condition: |route| &route.topic,
        value: |event| Some(&event.topic),
    },
    Field {
        condition: |route| &route.event_type,
        value: |event| event.event_type.as_deref(),
    },
    Field {
        condition: |route| &route.aggregate_type,
        value: |event| event.aggregate_type.as_deref(),
    },
    Field {
        condition: |route| &route.namespace,
        value: |event| Some(&event.namespace),
    },
    Field {
        condition: |route| &route.severity,
        value: |event| event.severity.as_deref(),
    },
];

/// The condition that a route is filed under.
#[derive(Clone, Copy)]
enum Filed {
    Tenant,
    Text(usize),
}

impl RouteIndex {
    /// An index of these routes, given with their places in the table.
    pub(crate) fn new<'a>(routes: impl Iterator<Item = (usize, &'a Route)> + Clone) -> Self {
        let mut index = Self::default();
        if routes.clone().nth(FEW).is_none() {
            index.others = routes.map(|(place, _)| place).collect();
            return index;
        }
        // First under all conditions, to see how many routes share each.
        let mut all = Self::default();
        for (place, route) in routes.clone() {
            for filed in conditions(route) {
                all.file(filed, place, route);
            }
        }
        for (place, route) in routes {
            match conditions(route).min_by_key(|filed| all.most_at(*filed, route)) {
                Some(filed) => index.file(filed, place, route),
                None => index.others.push(place),
            }
        }
        index
    }

    /// The routes that may match, in the order of the table. All others do not.
    pub(crate) fn candidates(&self, event: &Event) -> Places {
        let mut places = self.others.clone();
        let tenant = event.tenant_id.and_then(|tenant| self.tenants.get(&tenant));
        places.extend(tenant.into_iter().flatten());
        for (field, texts) in FIELDS.iter().zip(&self.texts) {
            if let Some(text) = (field.value)(event) {
                places.extend(texts.at(text).flatten());
            }
        }
        // A route may be filed under several values of one list.
        places.sort_unstable();
        places.dedup();
        places
    }

    fn file(&mut self, filed: Filed, place: usize, route: &Route) {
        match filed {
            Filed::Tenant => {
                for tenant in &route.tenant {
                    self.tenants.entry(*tenant).or_default().push(place);
                }
            }
            Filed::Text(number) => {
                let texts = &mut self.texts[number];
                for pattern in &(FIELDS[number].condition)(route).0 {
                    let (map, text) = match pattern {
                        Pattern::Exact(text) => (&mut texts.exact, text),
                        Pattern::Prefix(text) => (&mut texts.prefix, text),
                        Pattern::Any => continue,
                    };
                    map.entry(text.clone()).or_default().push(place);
                }
            }
        }
    }

    /// How many routes an event meets at most that has one of the values of this condition.
    fn most_at(&self, filed: Filed, route: &Route) -> usize {
        let count = |places: Option<&Places>| places.map_or(0, Vec::len);
        match filed {
            Filed::Tenant => {
                let counts = route.tenant.iter().map(|tenant| count(self.tenants.get(tenant)));
                counts.max().unwrap_or(0)
            }
            Filed::Text(number) => {
                let texts = &self.texts[number];
                let patterns = (FIELDS[number].condition)(route).0.iter();
                let counts = patterns.map(|pattern| match pattern {
                    Pattern::Exact(text) => count(texts.exact.get(text)),
                    Pattern::Prefix(text) => count(texts.prefix.get(text)),
                    Pattern::Any => 0,
                });
                counts.max().unwrap_or(0)
            }
        }
    }
}

impl Texts {
    fn at<'a>(&'a self, text: &'a str) -> impl Iterator<Item = &'a Places> {
        let exact = self.exact.get(text);
        let dots = text.match_indices('.').filter(|_| !self.prefix.is_empty());
        let prefixes = dots.filter_map(|(dot, _)| self.prefix.get(&text[..=dot]));
        exact.into_iter().chain(prefixes)
    }
}

/// The conditions under which a route can be filed: an event that matches the route has one of the values.
fn conditions(route: &Route) -> impl Iterator<Item = Filed> {
    let tenant = (!route.tenant.is_empty()).then_some(Filed::Tenant);
    let texts = FIELDS.iter().enumerate().filter(|(_, field)| {
        let patterns = &(field.condition)(route).0;
        !patterns.is_empty() && patterns.iter().all(has_value)
    });
    tenant
        .into_iter()
        .chain(texts.map(|(number, _)| Filed::Text(number)))
}

fn has_value(pattern: &Pattern) -> bool {
    match pattern {
        Pattern::Any => false,
        Pattern::Exact(_) => true,
        Pattern::Prefix(prefix) => prefix.ends_with('.'),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    fn index(routes: &[Route]) -> RouteIndex {
        RouteIndex::new(routes.iter().enumerate())
    }

    fn tenant(n: u128) -> Uuid {
        Uuid::from_u128(n)
    }

    #[test]
    fn ten_thousand_routes_of_tenants_cost_what_one_does() {
        let routes: Vec<Route> = (0..10_000)
            .map(|n| Route {
                tenant: vec![tenant(n)],
                namespace: "shop".into(),
                topic: "orders.*".into(),
                ..Route::to(format!("channel-{n}"))
            })
            .collect();
        let event = Event::new("shop", "orders.created");
        assert_eq!(index(&routes).candidates(&event.clone().tenant(tenant(77))), [77]);
        assert!(index(&routes).candidates(&event).is_empty());
    }

    #[test]
    fn a_route_is_filed_under_the_condition_that_few_others_have() {
        // One tenant has all the routes: their topics tell them apart.
        let routes: Vec<Route> = (0..10_000)
            .map(|n| Route {
                tenant: vec![tenant(1)],
                topic: format!("topic-{n}").as_str().into(),
                ..Route::to("a")
            })
            .chain([Route::to("all")])
            .collect();
        let event = Event::new("shop", "topic-5").tenant(tenant(1));
        assert_eq!(index(&routes).candidates(&event), [5, 10_000]);
    }

    fn pattern() -> impl Strategy<Value = Pattern> {
        let texts = select(vec!["a", "b", "a.b", "a.", "a.b.c", "*", "a.*", "a.b.*", "b.*"]);
        prop_oneof![
            9 => texts.prop_map(Pattern::from),
            // Only code can write these.
            1 => select(vec!["", "a"]).prop_map(|prefix| Pattern::Prefix(prefix.to_owned())),
        ]
    }

    fn one_of() -> impl Strategy<Value = OneOf> {
        prop_oneof![
            2 => Just(OneOf::default()),
            3 => prop::collection::vec(pattern(), 1..4).prop_map(OneOf),
        ]
    }

    prop_compose! {
        fn route()(
            topic in one_of(),
            namespace in one_of(),
            event_type in one_of(),
            aggregate_type in one_of(),
            severity in one_of(),
            tenants in prop::collection::vec(0u128..4, 0..3),
        ) -> Route {
            Route {
                topic, namespace, event_type, aggregate_type, severity,
                tenant: tenants.into_iter().map(tenant).collect(),
                ..Route::to("a")
            }
        }
    }

    prop_compose! {
        fn event()(
            texts in prop::collection::vec(select(vec!["a", "b", "a.b", "a.", "a.b.c", "c", "b.x"]), 5),
            has in prop::collection::vec(any::<bool>(), 4),
            n in 0u128..4,
        ) -> Event {
            let mut event = Event::new(texts[0], texts[1]);
            event.event_type = has[0].then(|| texts[2].to_owned());
            event.aggregate_type = has[1].then(|| texts[3].to_owned());
            event.severity = has[2].then(|| texts[4].to_owned());
            event.tenant_id = has[3].then(|| tenant(n));
            event
        }
    }

    proptest! {
        #[test]
        fn every_route_that_matches_is_a_candidate(
            routes in prop::collection::vec(route(), 0..40),
            event in event(),
        ) {
            let candidates = index(&routes).candidates(&event);
            prop_assert!(candidates.is_sorted());
            let matching: Vec<usize> = (0..routes.len()).filter(|n| routes[*n].matches(&event)).collect();
            let found: Vec<usize> = candidates.into_iter().filter(|n| routes[*n].matches(&event)).collect();
            prop_assert_eq!(found, matching);
        }
    }
}
