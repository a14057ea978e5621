//! Which destinations an event goes to. Pure.
//!
//! An event with its own destination goes there. Other events go to the destination of every route that matches. Without
//! routes and with one destination, all events go there. If several routes name one destination, it gets one row, and
//! the first of these routes decides the policy. If no route matches, the caller decides.

use std::collections::HashMap;
use std::convert::Infallible;
use std::str::FromStr;
use std::sync::Arc;

use pillarbox::Event;
use uuid::Uuid;

use crate::policy::{Overrides, Policy};

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

    fn matches(&self, event: &Event) -> bool {
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
            .collect::<Result<_, _>>()?;
        Ok(Self {
            numbers,
            policies,
            routes,
        })
    }

    /// Where an event without its own destination goes, each destination once. Empty if no route matches.
    pub(crate) fn targets(&self, event: &Event) -> Vec<Target> {
        let mut targets: Vec<Target> = Vec::new();
        for (_, target) in self.routes.iter().filter(|(route, _)| route.matches(event)) {
            if targets.iter().all(|known| known.number != target.number) {
                targets.push(target.clone());
            }
        }
        targets
    }

    /// The target of a row that has its destination. The first matching route to it decides the policy, otherwise the
    /// destination does. `None` if the destination is not configured.
    pub(crate) fn target_at(&self, destination: &str, event: &Event) -> Option<Target> {
        let number = *self.numbers.get(destination)?;
        let route = self
            .routes
            .iter()
            .find(|(route, target)| target.number == number && route.matches(event));
        Some(match route {
            Some((_, target)) => target.clone(),
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
        "no route matches namespace \"{}\" topic \"{}\" event type \"{}\"; add a route",
        event.namespace,
        event.topic,
        event.event_type.as_deref().unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
    fn the_reason_of_an_unrouted_event_says_what_to_do() {
        let event = Event::new("n", "t");
        assert!(numbers(&table(vec![]), &event).is_empty());
        let reason = no_route(&event);
        assert!(reason.contains("namespace \"n\" topic \"t\"") && reason.ends_with("add a route"));
    }

    #[test]
    fn a_route_to_an_unknown_destination_is_rejected() {
        let table = RouteTable::new(vec![("a".to_owned(), Policy::default())], vec![Route::to("z")]);
        assert_eq!(table.expect_err("no z"), "z");
    }
}
