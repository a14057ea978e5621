//! Which destinations an event goes to. Pure.
//!
//! An event with its own destination goes there. Other events go to the destination of every route that matches. Without
//! routes and with one destination, all events go there. If several routes name one destination, it gets one row, and
//! the first of these routes decides the policy. If no route matches, the caller decides.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::str::FromStr;
use std::sync::Arc;

use pillarbox::Event;
use uuid::Uuid;

use crate::policy::{Overrides, Policy};
use crate::route::route_index::RouteIndex;

/// A condition on one field of an event: `*` matches everything, `orders.*` everything that begins with `orders.`, and
/// all other text matches itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Pattern {
    /// Every value, and no value.
    #[default]
    Any,
    /// Values with this beginning.
    Prefix(String),
    /// This value.
    Exact(String),
}

impl From<&str> for Pattern {
    fn from(text: &str) -> Self {
        match text.strip_suffix('*') {
            Some("") => Self::Any,
            Some(prefix) if prefix.ends_with('.') => Self::Prefix(prefix.to_owned()),
            Some(_) | None => Self::Exact(text.to_owned()),
        }
    }
}

impl FromStr for Pattern {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(text.into())
    }
}

impl Pattern {
    /// Does the field match?
    pub fn matches(&self, text: Option<&str>) -> bool {
        match self {
            Self::Any => true,
            Self::Prefix(prefix) => text.is_some_and(|text| text.starts_with(prefix)),
            Self::Exact(exact) => text == Some(exact),
        }
    }
}

/// Matches if one of the patterns does, or if there are none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OneOf(pub Vec<Pattern>);

impl OneOf {
    /// Does the field match?
    pub fn matches(&self, text: Option<&str>) -> bool {
        self.0.is_empty() || self.0.iter().any(|pattern| pattern.matches(text))
    }
}

impl From<&str> for OneOf {
    fn from(text: &str) -> Self {
        Self(vec![text.into()])
    }
}

impl<'a> FromIterator<&'a str> for OneOf {
    fn from_iter<I: IntoIterator<Item = &'a str>>(patterns: I) -> Self {
        Self(patterns.into_iter().map(Pattern::from).collect())
    }
}

/// A rule that sends events to a destination. All of its conditions must match.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Route {
    /// The event's namespace.
    pub namespace: OneOf,
    /// The event's topic.
    pub topic: OneOf,
    /// The event's type.
    pub event_type: OneOf,
    /// The type of the event's aggregate.
    pub aggregate_type: OneOf,
    /// The event's tenant. If the list is empty, all events match, with and without a tenant.
    pub tenant: Vec<Uuid>,
    /// The event's severity.
    pub severity: OneOf,
    /// The name of the destination.
    pub destination: String,
    /// What differs from the destination's policy.
    pub overrides: Overrides,
}

impl Route {
    /// Sends all events to this destination.
    pub fn to(destination: impl Into<String>) -> Self {
        Self {
            destination: destination.into(),
            ..Self::default()
        }
    }

    fn has_no_conditions(&self) -> bool {
        let texts = [
            &self.namespace,
            &self.topic,
            &self.event_type,
            &self.aggregate_type,
            &self.severity,
        ];
        let is_any = |text: &&OneOf| text.0.is_empty() || text.0.contains(&Pattern::Any);
        self.tenant.is_empty() && texts.iter().all(is_any)
    }

    pub(crate) fn matches(&self, event: &Event) -> bool {
        self.namespace.matches(Some(&event.namespace))
            && self.topic.matches(Some(&event.topic))
            && self.event_type.matches(event.event_type.as_deref())
            && self.aggregate_type.matches(event.aggregate_type.as_deref())
            && self.severity.matches(event.severity.as_deref())
            && (self.tenant.is_empty()
                || event
                    .tenant_id
                    .is_some_and(|tenant| self.tenant.contains(&tenant)))
    }
}

/// One destination of a row, and the policy that applies there.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// The destination's index.
    pub(crate) number: usize,
    pub(crate) policy: Arc<Policy>,
}

/// All routes, each with its target.
#[derive(Debug)]
pub(crate) struct RouteTable {
    numbers: HashMap<String, usize>,
    policies: Vec<Arc<Policy>>,
    routes: Vec<(Route, Target)>,
    index: RouteIndex,
}

impl RouteTable {
    /// The routes to these destinations, which are numbered by their index.
    ///
    /// # Errors
    /// The name of an unknown destination in a route.
    pub(crate) fn new(destinations: Vec<(String, Policy)>, routes: Vec<Route>) -> Result<Self, String> {
        let mut numbers = HashMap::new();
        let mut policies = Vec::new();
        for (number, (name, policy)) in destinations.into_iter().enumerate() {
            numbers.insert(name, number);
            policies.push(Arc::new(policy));
        }
        let routes = if routes.is_empty() && numbers.len() == 1 {
            numbers.keys().map(Route::to).collect()
        } else {
            routes
        };
        let routes = routes
            .into_iter()
            .map(|route| {
                let Some(&number) = numbers.get(&route.destination) else {
                    return Err(route.destination);
                };
                let policy = if route.overrides == Overrides::default() {
                    Arc::clone(&policies[number])
                } else {
                    Arc::new(policies[number].with(&route.overrides))
                };
                Ok((route, Target { number, policy }))
            })
            .collect::<Result<Vec<(Route, Target)>, _>>()?;
        let mut is_covered = vec![false; policies.len()];
        let reached = routes.iter().enumerate().filter(|(_, (route, target))| {
            // The first route decides. After one without conditions, no other to its destination does.
            let is_reached = !is_covered[target.number];
            is_covered[target.number] |= route.has_no_conditions();
            is_reached
        });
        let reached: Vec<(usize, &Route)> = reached.map(|(place, (route, _))| (place, route)).collect();
        Ok(Self {
            index: RouteIndex::new(reached.into_iter()),
            numbers,
            policies,
            routes,
        })
    }

    /// Are there any routes?
    pub(crate) fn has_routes(&self) -> bool {
        !self.routes.is_empty()
    }

    /// The routes that match, in their order, without those that no longer matter.
    fn matching(&self, event: &Event) -> impl Iterator<Item = &Target> {
        let candidates = self.index.candidates(event).into_iter();
        let candidates = candidates.map(|place| &self.routes[place]);
        candidates
            .filter(|(route, _)| route.matches(event))
            .map(|(_, target)| target)
    }

    /// Where an event without its own destination goes, each destination once. Empty if no route matches.
    pub(crate) fn targets(&self, event: &Event) -> Vec<Target> {
        let mut known = HashSet::new();
        let mut targets: Vec<Target> = Vec::new();
        for target in self.matching(event) {
            if known.insert(target.number) {
                targets.push(target.clone());
            }
        }
        targets
    }

    /// The target of a row that has its destination. The first matching route to it decides the policy, otherwise the
    /// destination does. `None` if the destination is not configured.
    pub(crate) fn target_at(&self, destination: &str, event: &Event) -> Option<Target> {
        let number = *self.numbers.get(destination)?;
        let target = self.matching(event).find(|target| target.number == number);
        Some(match target {
            Some(target) => target.clone(),
            None => Target {
                number,
                policy: Arc::clone(&self.policies[number]),
            },
        })
    }

    /// The index of a destination, if it is configured.
    pub(crate) fn number(&self, destination: &str) -> Option<usize> {
        self.numbers.get(destination).copied()
    }
}

/// Why an event is unrouted, and what to do.
pub(crate) fn no_route(event: &Event) -> String {
    format!(
        "no route matches namespace \"{}\" topic \"{}\" event type \"{}\" (add a route)",
        event.namespace,
        event.topic,
        event.event_type.as_deref().unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn route(namespace: &str, topic: &str, event_type: &str, destination: &str) -> Route {
        Route {
            namespace: namespace.into(),
            topic: topic.into(),
            event_type: event_type.into(),
            ..Route::to(destination)
        }
    }

    fn table(routes: Vec<Route>) -> RouteTable {
        let destinations = ["a", "b"].map(|name| (name.to_owned(), Policy::default()));
        RouteTable::new(destinations.into(), routes).expect("known destinations")
    }

    fn numbers(table: &RouteTable, event: &Event) -> Vec<usize> {
        table.targets(event).iter().map(|target| target.number).collect()
    }

    #[test]
    fn a_pattern_matches_everything_a_prefix_or_itself() {
        assert_eq!(Pattern::from("*"), Pattern::Any);
        assert!(Pattern::Any.matches(None) && Pattern::Any.matches(Some("x")));
        let prefix = Pattern::from("orders.*");
        assert!(prefix.matches(Some("orders.created")) && prefix.matches(Some("orders.")));
        assert!(!prefix.matches(Some("orders")) && !prefix.matches(Some("ordersx")) && !prefix.matches(None));
        let exact = Pattern::from("orders*");
        assert!(exact.matches(Some("orders*")) && !exact.matches(Some("orders.created")));
    }

    #[test]
    fn one_match_of_a_list_is_enough_and_an_empty_list_matches() {
        let list: OneOf = ["orders", "carts.*"].into_iter().collect();
        assert!(list.matches(Some("orders")) && list.matches(Some("carts.full")));
        assert!(!list.matches(Some("bills")) && !list.matches(None));
        assert!(OneOf::default().matches(None));
    }

    #[test]
    fn an_event_goes_once_to_the_destination_of_every_matching_route() {
        let table = table(vec![
            route("shop", "orders", "*", "b"),
            route("shop", "*", "*", "a"),
            route("*", "*", "Paid", "b"),
        ]);
        assert_eq!(
            numbers(&table, &Event::new("shop", "orders").event_type("Paid")),
            [1, 0]
        );
        assert_eq!(numbers(&table, &Event::new("shop", "carts")), [0]);
        assert_eq!(
            numbers(&table, &Event::new("bank", "carts").event_type("Paid")),
            [1]
        );
        assert!(numbers(&table, &Event::new("bank", "carts")).is_empty());
    }

    #[test]
    fn every_condition_of_a_route_must_match() {
        let tenant = Uuid::from_u128(7);
        let table = table(vec![Route {
            aggregate_type: "order".into(),
            tenant: vec![tenant],
            severity: ["high", "critical"].into_iter().collect(),
            ..Route::to("a")
        }]);
        let event = Event::new("n", "t")
            .aggregate("order", "1")
            .tenant(tenant)
            .severity("high");
        assert_eq!(numbers(&table, &event), [0]);
        assert!(numbers(&table, &event.clone().severity("low")).is_empty());
        assert!(numbers(&table, &event.clone().tenant(Uuid::from_u128(8))).is_empty());
        assert!(numbers(&table, &event.aggregate("cart", "1")).is_empty());
    }

    #[test]
    fn the_first_matching_route_to_a_destination_decides_the_policy() {
        let quick = Overrides {
            timeout: Some(Duration::from_secs(1)),
            ..Overrides::default()
        };
        let mut first = route("shop", "*", "*", "b");
        first.overrides = quick;
        let table = table(vec![first, route("*", "*", "*", "b")]);
        let timeout = |event: &Event| table.targets(event)[0].policy.timeout.as_secs();
        assert_eq!(timeout(&Event::new("shop", "orders")), 1);
        assert_eq!(timeout(&Event::new("bank", "orders")), 20);
        let target = table
            .target_at("b", &Event::new("shop", "orders"))
            .expect("a known destination");
        assert_eq!(target.policy.timeout.as_secs(), 1);
    }

    #[test]
    fn a_rows_own_destination_needs_no_route() {
        let table = table(vec![route("*", "*", "*", "a")]);
        let event = Event::new("n", "t");
        assert_eq!(table.target_at("b", &event).map(|target| target.number), Some(1));
        assert!(table.target_at("c", &event).is_none());
    }

    #[test]
    fn without_routes_a_single_destination_gets_all_events() {
        let table = RouteTable::new(vec![("only".to_owned(), Policy::default())], vec![]).expect("no routes");
        assert_eq!(numbers(&table, &Event::new("n", "t")), [0]);
    }

    #[test]
    fn routes_behind_one_without_conditions_cost_nothing() {
        let mut routes: Vec<Route> = (0..10_000).map(|_| Route::to("a")).collect();
        routes.push(Route::to("b"));
        let table = table(routes);
        let event = Event::new("n", "t");
        assert_eq!(table.index.candidates(&event), [0, 10_000]);
        assert_eq!(numbers(&table, &event), [0, 1]);
    }

    proptest! {
        /// As the module defines it: every route in turn.
        #[test]
        fn an_index_changes_no_target(
            picks in prop::collection::vec((0usize..4, 0usize..4, 0usize..2, 1u64..100), 0..40),
            topic in 0usize..4,
            tenant in 0u128..4,
        ) {
            let topics = ["*", "a.*", "a.b", "c"];
            let routes: Vec<Route> = picks.iter().map(|(topic, tenant, to, seconds)| Route {
                topic: topics[*topic].into(),
                tenant: (*tenant > 0).then(|| Uuid::from_u128(*tenant as u128)).into_iter().collect(),
                overrides: Overrides { timeout: Some(Duration::from_secs(*seconds)), ..Overrides::default() },
                ..Route::to(["a", "b"][*to])
            }).collect();
            let event = Event::new("n", ["a", "a.b", "a.c", "c"][topic]).tenant(Uuid::from_u128(tenant));
            let mut expected: Vec<(usize, Duration)> = Vec::new();
            for route in routes.iter().filter(|route| route.matches(&event)) {
                let number = usize::from(route.destination == "b");
                if expected.iter().all(|(known, _)| *known != number) {
                    expected.push((number, route.overrides.timeout.expect("every route has one")));
                }
            }
            let table = table(routes);
            let targets = table.targets(&event);
            let targets: Vec<_> = targets.iter().map(|target| (target.number, target.policy.timeout)).collect();
            prop_assert_eq!(&targets, &expected);
            for (number, name) in ["a", "b"].into_iter().enumerate() {
                let target = table.target_at(name, &event).expect("known");
                let first = expected.iter().find(|(known, _)| *known == number);
                prop_assert_eq!(target.number, number);
                prop_assert_eq!(target.policy.timeout, first.map_or(Policy::default().timeout, |(_, timeout)| *timeout));
            }
        }
    }

    #[test]
    fn the_reason_of_an_unrouted_event_says_what_to_do() {
        let event = Event::new("n", "t");
        assert!(numbers(&table(vec![]), &event).is_empty());
        let reason = no_route(&event);
        assert!(reason.contains("namespace \"n\" topic \"t\"") && reason.ends_with("(add a route)"));
    }

    #[test]
    fn a_route_to_an_unknown_destination_is_rejected() {
        let table = RouteTable::new(vec![("a".to_owned(), Policy::default())], vec![Route::to("z")]);
        assert_eq!(table.expect_err("no z"), "z");
    }
}
