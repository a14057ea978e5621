//! Which destinations an event goes to. Pure.
//!
//! The row's own destination comes first, then every route that matches; where there are no routes and
//! one destination, everything goes there. Several routes may lead to one place: one row goes there, and the
//! first of them says how. What leads nowhere is the caller's concern, never dropped here.

use std::collections::HashMap;
use std::convert::Infallible;
use std::str::FromStr;
use std::sync::Arc;

use pillarbox::Event;
use uuid::Uuid;

use crate::policy::{Overrides, Policy};

/// What a route wants of one field: `*` is anything, `orders.*` is anything that begins with
/// `orders.`, everything else is itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Pattern {
    /// Anything, also nothing.
    #[default]
    Any,
    /// Whatever begins so.
    Prefix(String),
    /// This.
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
    /// Does the field have what the route wants?
    pub fn matches(&self, text: Option<&str>) -> bool {
        match self {
            Self::Any => true,
            Self::Prefix(prefix) => text.is_some_and(|text| text.starts_with(prefix)),
            Self::Exact(exact) => text == Some(exact),
        }
    }
}

/// One of these; anything if there are none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OneOf(pub Vec<Pattern>);

impl OneOf {
    /// Does the field have what the route wants?
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

/// A rule from event to destination. All of its conditions must hold.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Route {
    /// Who publishes.
    pub namespace: OneOf,
    /// What.
    pub topic: OneOf,
    /// What happened.
    pub event_type: OneOf,
    /// What kind of thing it happened to.
    pub aggregate_type: OneOf,
    /// Whose it is; anybody's, and nobody's, if there are none.
    pub tenant: Vec<Uuid>,
    /// How bad it is.
    pub severity: OneOf,
    /// Where it goes: the name of a destination.
    pub destination: String,
    /// How it is treated there, where that differs from what the destination says.
    pub overrides: Overrides,
}

impl Route {
    /// Everything, to this destination.
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

/// Where one row goes, and how it is treated there.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// The destination's place in the list.
    pub(crate) number: usize,
    pub(crate) policy: Arc<Policy>,
}

/// The routes, each with the number of its destination and its policy.
#[derive(Debug)]
pub(crate) struct RouteTable {
    numbers: HashMap<String, usize>,
    policies: Vec<Arc<Policy>>,
    routes: Vec<(Route, Target)>,
}

impl RouteTable {
    /// Routes among these destinations, by their place in the list.
    ///
    /// # Errors
    /// The name of a destination that a route names and that is not there.
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

    /// Where an event goes that knows no destination: to each place once. Empty if it leads nowhere.
    pub(crate) fn targets(&self, event: &Event) -> Vec<Target> {
        let mut targets: Vec<Target> = Vec::new();
        for (_, target) in self.routes.iter().filter(|(route, _)| route.matches(event)) {
            if targets.iter().all(|known| known.number != target.number) {
                targets.push(target.clone());
            }
        }
        targets
    }

    /// How a row is treated that is on its target to a destination: as the first route says that leads there, or as
    /// the destination itself. `None` if the destination is not configured.
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

    /// The number of a destination, if it is configured.
    pub(crate) fn number(&self, destination: &str) -> Option<usize> {
        self.numbers.get(destination).copied()
    }
}

/// Why an event is held, and what to do.
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

    use pillarbox::RetryPolicy;

    use super::*;

    fn policy() -> Policy {
        Policy {
            retry: RetryPolicy::default(),
            timeout: Duration::from_secs(20),
            on_dead: crate::OnDead::Block,
            pipelined: false,
        }
    }

    fn route(namespace: &str, topic: &str, event_type: &str, destination: &str) -> Route {
        Route {
            namespace: namespace.into(),
            topic: topic.into(),
            event_type: event_type.into(),
            ..Route::to(destination)
        }
    }

    fn router(routes: Vec<Route>) -> RouteTable {
        let destinations = ["a", "b"].map(|name| (name.to_owned(), policy()));
        RouteTable::new(destinations.into(), routes).expect("the destinations are there")
    }

    fn numbers(router: &RouteTable, event: &Event) -> Vec<usize> {
        router.targets(event).iter().map(|target| target.number).collect()
    }

    #[test]
    fn a_pattern_is_anything_a_beginning_or_itself() {
        assert_eq!(Pattern::from("*"), Pattern::Any);
        assert!(Pattern::Any.matches(None) && Pattern::Any.matches(Some("x")));
        let prefix = Pattern::from("orders.*");
        assert!(prefix.matches(Some("orders.created")) && prefix.matches(Some("orders.")));
        assert!(!prefix.matches(Some("orders")) && !prefix.matches(Some("ordersx")) && !prefix.matches(None));
        let exact = Pattern::from("orders*");
        assert!(exact.matches(Some("orders*")) && !exact.matches(Some("orders.created")));
    }

    #[test]
    fn one_of_a_list_is_enough_and_an_empty_list_is_anything() {
        let list: OneOf = ["orders", "carts.*"].into_iter().collect();
        assert!(list.matches(Some("orders")) && list.matches(Some("carts.full")));
        assert!(!list.matches(Some("bills")) && !list.matches(None));
        assert!(OneOf::default().matches(None));
    }

    #[test]
    fn an_event_goes_wherever_a_route_leads_and_to_each_place_once() {
        let router = router(vec![
            route("shop", "orders", "*", "b"),
            route("shop", "*", "*", "a"),
            route("*", "*", "Paid", "b"),
        ]);
        assert_eq!(
            numbers(&router, &Event::new("shop", "orders").event_type("Paid")),
            [1, 0]
        );
        assert_eq!(numbers(&router, &Event::new("shop", "carts")), [0]);
        assert_eq!(
            numbers(&router, &Event::new("bank", "carts").event_type("Paid")),
            [1]
        );
        assert!(numbers(&router, &Event::new("bank", "carts")).is_empty());
    }

    #[test]
    fn every_condition_of_a_route_must_hold() {
        let tenant = Uuid::from_u128(7);
        let router = router(vec![Route {
            aggregate_type: "order".into(),
            tenant: vec![tenant],
            severity: ["high", "critical"].into_iter().collect(),
            ..Route::to("a")
        }]);
        let event = Event::new("n", "t")
            .aggregate("order", "1")
            .tenant(tenant)
            .severity("high");
        assert_eq!(numbers(&router, &event), [0]);
        assert!(numbers(&router, &event.clone().severity("low")).is_empty());
        assert!(numbers(&router, &event.clone().tenant(Uuid::from_u128(8))).is_empty());
        assert!(numbers(&router, &event.aggregate("cart", "1")).is_empty());
    }

    #[test]
    fn the_first_route_that_leads_to_a_place_says_how() {
        let quick = Overrides {
            timeout: Some(Duration::from_secs(1)),
            ..Overrides::default()
        };
        let mut first = route("shop", "*", "*", "b");
        first.overrides = quick;
        let router = router(vec![first, route("*", "*", "*", "b")]);
        let timeout = |event: &Event| router.targets(event)[0].policy.timeout.as_secs();
        assert_eq!(timeout(&Event::new("shop", "orders")), 1);
        assert_eq!(timeout(&Event::new("bank", "orders")), 20);
        let target = router
            .target_at("b", &Event::new("shop", "orders"))
            .expect("there");
        assert_eq!(target.policy.timeout.as_secs(), 1);
    }

    #[test]
    fn a_rows_own_destination_needs_no_route() {
        let router = router(vec![route("*", "*", "*", "a")]);
        let event = Event::new("n", "t");
        assert_eq!(router.target_at("b", &event).map(|target| target.number), Some(1));
        assert!(router.target_at("c", &event).is_none());
    }

    #[test]
    fn one_destination_and_no_routes_take_everything() {
        let router = RouteTable::new(vec![("only".to_owned(), policy())], vec![]).expect("no routes");
        assert_eq!(numbers(&router, &Event::new("n", "t")), [0]);
    }

    #[test]
    fn what_leads_nowhere_says_what_to_do() {
        let event = Event::new("n", "t");
        assert!(numbers(&router(vec![]), &event).is_empty());
        let reason = no_route(&event);
        assert!(reason.contains("namespace \"n\" topic \"t\"") && reason.ends_with("add a route"));
    }

    #[test]
    fn a_route_to_nowhere_is_refused() {
        let refused = RouteTable::new(vec![("a".to_owned(), policy())], vec![Route::to("z")]);
        assert_eq!(refused.expect_err("no z"), "z");
    }
}
