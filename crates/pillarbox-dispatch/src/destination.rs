//! One configured destination: a sink, its name and its policy.

use std::fmt;
use std::sync::Arc;

use pillarbox::Sink;

use crate::policy::{Policy, Rate};

/// How many attempts run at once unless the application decides.
const CONCURRENCY: usize = 16;

/// One configured destination.
///
/// ```
/// # fn example(sink: impl pillarbox::Sink) {
/// use pillarbox_dispatch::Destination;
///
/// let destination = Destination::new("mailer", sink).concurrency(4);
/// # }
/// ```
#[derive(Clone)]
pub struct Destination {
    /// The name that routes, logs and operators use.
    pub name: String,
    /// Delivers the events.
    pub sink: Arc<dyn Sink>,
    /// How rows are treated, unless their route overrides it.
    pub policy: Policy,
    /// How many attempts may run at once.
    pub concurrency: usize,
    /// How many attempts may start per second, if that is limited. Each worker counts for itself.
    pub rate: Option<Rate>,
    /// Are rows claimed in rotation over tenants? Otherwise in the order of insertion.
    pub fair_by_tenant: bool,
}

impl Destination {
    /// A destination with the default policy: 16 attempts at once, no rate limit.
    pub fn new(name: impl Into<String>, sink: impl Sink) -> Self {
        Self::shared(name, Arc::new(sink))
    }

    /// The same for a sink that is shared.
    pub fn shared(name: impl Into<String>, sink: Arc<dyn Sink>) -> Self {
        Self {
            name: name.into(),
            sink,
            policy: Policy::default(),
            concurrency: CONCURRENCY,
            rate: None,
            fair_by_tenant: false,
        }
    }

    /// Sets how rows are treated.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets how many attempts may run at once.
    #[must_use]
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency;
        self
    }

    /// Limits how many attempts may start per second.
    #[must_use]
    pub fn rate(mut self, rate: Rate) -> Self {
        self.rate = Some(rate);
        self
    }

    /// Claims rows in rotation over tenants.
    #[must_use]
    pub fn fair_by_tenant(mut self) -> Self {
        self.fair_by_tenant = true;
        self
    }
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Destination")
            .field("name", &self.name)
            .field("policy", &self.policy)
            .field("concurrency", &self.concurrency)
            .field("rate", &self.rate)
            .finish_non_exhaustive()
    }
}
