//! Which destination an event goes to. Pure.
//!
//! The event's own wish comes first, then the first route that matches; where there are no routes and
//! one destination, everything goes there. What leads nowhere is held, never dropped.

use std::collections::HashMap;
use std::convert::Infallible;
use std::str::FromStr;

use pillarbox::Event;

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

/// A rule from event to destination. The first that matches wins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Who publishes.
    pub namespace: Pattern,
    /// What.
    pub topic: Pattern,
    /// What happened.
    pub event_type: Pattern,
    /// Where it goes: the name of a destination.
    pub destination: String,
}

impl Route {
    fn matches(&self, event: &Event) -> bool {
        self.namespace.matches(Some(&event.namespace))
            && self.topic.matches(Some(&event.topic))
            && self.event_type.matches(event.event_type.as_deref())
    }
}

/// The routes, each with the number of its destination.
#[derive(Debug)]
pub(crate) struct Router {
    numbers: HashMap<String, usize>,
    routes: Vec<(Route, usize)>,
    everything: Option<usize>,
}

impl Router {
    /// Routes among these destinations, by their place in the list.
    ///
    /// # Errors
    /// The name of a destination that a route names and that is not there.
    pub(crate) fn new<'a>(
        destinations: impl IntoIterator<Item = &'a str>,
        routes: Vec<Route>,
    ) -> Result<Self, String> {
        let numbers: HashMap<String, usize> = destinations
            .into_iter()
            .enumerate()
            .map(|(number, name)| (name.to_owned(), number))
            .collect();
        let everything = (routes.is_empty() && numbers.len() == 1).then_some(0);
        let number = |route: Route| match numbers.get(&route.destination) {
            Some(number) => Ok((route, *number)),
            None => Err(route.destination),
        };
        let routes = routes.into_iter().map(number).collect::<Result<_, _>>()?;
        Ok(Self {
            numbers,
            routes,
            everything,
        })
    }

    /// The number of the event's destination.
    ///
    /// # Errors
    /// A sentence that says why there is none and what to do.
    pub(crate) fn route(&self, event: &Event) -> Result<usize, String> {
        if let Some(name) = &event.destination {
            return self.numbers.get(name).copied().ok_or_else(|| {
                format!("the destination \"{name}\" is not configured; configure it, or change the row's")
            });
        }
        let first = self.routes.iter().find(|(route, _)| route.matches(event));
        match first {
            Some((_, number)) => Ok(*number),
            None => self.everything.ok_or_else(|| {
                format!(
                    "no route matches namespace \"{}\" topic \"{}\" event type \"{}\"; add a route",
                    event.namespace,
                    event.topic,
                    event.event_type.as_deref().unwrap_or_default()
                )
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(namespace: &str, topic: &str, event_type: &str, destination: &str) -> Route {
        Route {
            namespace: namespace.into(),
            topic: topic.into(),
            event_type: event_type.into(),
            destination: destination.into(),
        }
    }

    fn router(routes: Vec<Route>) -> Router {
        Router::new(["a", "b"], routes).expect("the destinations are there")
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
    fn the_first_route_that_matches_wins() {
        let router = router(vec![
            route("shop", "orders", "*", "b"),
            route("shop", "*", "*", "a"),
            route("*", "*", "Paid", "b"),
        ]);
        assert_eq!(router.route(&Event::new("shop", "orders")), Ok(1));
        assert_eq!(
            router.route(&Event::new("shop", "carts").event_type("Paid")),
            Ok(0)
        );
        assert_eq!(
            router.route(&Event::new("bank", "carts").event_type("Paid")),
            Ok(1)
        );
    }

    #[test]
    fn the_events_own_destination_goes_past_the_routes() {
        let router = router(vec![route("*", "*", "*", "a")]);
        assert_eq!(router.route(&Event::new("n", "t").destination("b")), Ok(1));
        let refused = router
            .route(&Event::new("n", "t").destination("c"))
            .expect_err("not there");
        assert!(refused.contains("\"c\" is not configured"), "{refused}");
    }

    #[test]
    fn one_destination_and_no_routes_take_everything() {
        let router = Router::new(["only"], vec![]).expect("no routes");
        assert_eq!(router.route(&Event::new("n", "t")), Ok(0));
    }

    #[test]
    fn what_leads_nowhere_says_what_to_do() {
        let refused = router(vec![])
            .route(&Event::new("n", "t"))
            .expect_err("two to choose from");
        assert!(refused.contains("namespace \"n\" topic \"t\"") && refused.ends_with("add a route"));
    }

    #[test]
    fn a_route_to_nowhere_is_refused() {
        assert_eq!(
            Router::new(["a"], vec![route("*", "*", "*", "z")]).expect_err("no z"),
            "z"
        );
    }
}
