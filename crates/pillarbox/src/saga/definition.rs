//! What a saga is made of: steps in their order, each with its command and how it is undone.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::machine::{Plan, Planned};
use crate::event::{Event, ToEvent};
use crate::outbox::Outbox;
use crate::retry::RetryPolicy;
use crate::validate::{MAX_DAYS_AHEAD, MAX_NAME};

/// How long a service has for its answer, by default.
const TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// The longest that a step can wait for an answer: half of what an event can be scheduled ahead, so that a wait before the
/// next try fits in as well.
const MAX_TIMEOUT: Duration = Duration::from_secs(MAX_DAYS_AHEAD.unsigned_abs() * 24 * 60 * 60 / 2);
/// How often a step is tried, by default.
const ATTEMPTS: u32 = 3;
/// The namespace of a saga's messages to itself, by default.
const NAMESPACE: &str = "sagas";

pub(crate) type Make<T> = Arc<dyn Fn(&T) -> Result<Event, serde_json::Error> + Send + Sync>;
pub(crate) type Take<T> = Arc<dyn Fn(&mut T, &[u8]) -> Result<(), serde_json::Error> + Send + Sync>;

/// One step: a command, and what belongs to it.
pub struct Step<T> {
    name: String,
    timeout: Duration,
    retry: RetryPolicy,
    functions: Functions<T>,
}

/// What a step does with the saga's data.
pub(crate) struct Functions<T> {
    pub(crate) command: Make<T>,
    pub(crate) compensation: Option<Make<T>>,
    pub(crate) take: Option<Take<T>>,
}

impl<T: 'static> Step<T> {
    /// A step that is done by a command: any event, made of what the saga knows by then. It is undone by nothing, waits five
    /// minutes for an answer, and is tried three times.
    ///
    /// The event's id and dedupe key are the saga's to set. An ordering key is kept where the command goes out at once; a
    /// try that waits has none, since it would hold up others of its key.
    pub fn new<E: ToEvent>(
        name: impl Into<String>,
        command: impl Fn(&T) -> E + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            timeout: TIMEOUT,
            retry: RetryPolicy::exponential(Duration::from_secs(1), Duration::from_secs(60))
                .max_attempts(ATTEMPTS),
            functions: Functions {
                command: make(command),
                compensation: None,
                take: None,
            },
        }
    }

    /// Sets the command that undoes the step. It is also sent if the outcome of the step is unknown, so a service must
    /// accept it when there is nothing to undo.
    #[must_use]
    pub fn compensation<E: ToEvent>(mut self, command: impl Fn(&T) -> E + Send + Sync + 'static) -> Self {
        self.functions.compensation = Some(make(command));
        self
    }

    /// Takes what a reply `done` to the command said, in JSON, into the saga's data.
    #[must_use]
    pub fn take<R: DeserializeOwned>(mut self, take: impl Fn(&mut T, R) + Send + Sync + 'static) -> Self {
        self.functions.take = Some(Arc::new(move |data, payload| {
            take(data, serde_json::from_slice(payload)?);
            Ok(())
        }));
        self
    }

    /// Sets how long a service has for its answer, to the command and to the compensation.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets how often the command is tried, and how long to wait before the next try. A compensation is tried for ever.
    #[must_use]
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = policy;
        self
    }
}

fn make<T, E: ToEvent>(command: impl Fn(&T) -> E + Send + Sync + 'static) -> Make<T> {
    Arc::new(move |data| Ok(command(data).to_event()?.into_owned()))
}

impl<T> fmt::Debug for Step<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Step")
            .field("name", &self.name)
            .field("timeout", &self.timeout)
            .field("retry", &self.retry)
            .finish_non_exhaustive()
    }
}

/// A saga while it is put together.
#[derive(Debug)]
#[must_use = "a definition does nothing until it is built"]
pub struct Definition<T> {
    name: String,
    namespace: String,
    topic: String,
    steps: Vec<Step<T>>,
    undo: RetryPolicy,
}

/// Why a definition is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSaga {
    /// It has no steps.
    #[error("the saga `{0}` has no steps")]
    NoSteps(String),
    /// Two steps have one name, so that replies could not be told apart.
    #[error("the saga `{saga}` has two steps `{step}`; every step needs a name of its own")]
    TwoSteps {
        /// Which saga.
        saga: String,
        /// Which name.
        step: String,
    },
    /// A name that cannot be a header's value or an event's address.
    #[error("{0:?} cannot be a name in a saga; use 1 to {MAX_NAME} bytes, and no control characters")]
    Name(String),
    /// No event can be scheduled so far ahead, or it would time out before it is sent.
    #[error("the timeout of the step `{0}` is to be longer than zero and at most 200 days")]
    Timeout(String),
}

impl<T: Serialize + DeserializeOwned + 'static> Definition<T> {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            namespace: NAMESPACE.to_owned(),
            topic: name.to_owned(),
            steps: Vec::new(),
            undo: RetryPolicy::exponential(Duration::from_secs(1), Duration::from_secs(3600)),
        }
    }

    /// Sets the namespace and the topic of the saga's messages to itself: timeouts and operators' requests. A route must
    /// deliver them to the consumer that calls [`handle`](super::Saga::handle). Without this it is `sagas` and the saga's name.
    pub fn address(mut self, namespace: impl Into<String>, topic: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self.topic = topic.into();
        self
    }

    /// Adds the next step.
    pub fn step(mut self, step: Step<T>) -> Self {
        self.steps.push(step);
        self
    }

    /// Sets how long to wait before the next try at a compensation: by default 1 s, doubling up to 1 h. There is always a
    /// next try, whatever limit the policy has.
    pub fn retry_compensations(mut self, policy: RetryPolicy) -> Self {
        self.undo = policy;
        self
    }

    /// Builds the saga. Its state and commands are in the schema of this outbox.
    ///
    /// # Errors
    /// When it has no steps, two of one name, or a name or a timeout that cannot be.
    pub fn build(self, outbox: &Outbox) -> Result<Saga<T>, InvalidSaga> {
        self.check()?;
        let planned = |step: &Step<T>| Planned {
            name: step.name.clone(),
            retry: step.retry.clone(),
            timeout: step.timeout,
            has_compensation: step.functions.compensation.is_some(),
        };
        let plan = Plan {
            steps: self.steps.iter().map(planned).collect(),
            undo: self.undo,
        };
        Ok(Saga {
            inner: Arc::new(Inner {
                name: self.name,
                namespace: self.namespace,
                topic: self.topic,
                plan,
                functions: self.steps.into_iter().map(|step| step.functions).collect(),
                outbox: outbox.clone(),
            }),
        })
    }

    fn check(&self) -> Result<(), InvalidSaga> {
        let names = self.steps.iter().map(|step| &step.name);
        for name in names.clone().chain([&self.name, &self.namespace, &self.topic]) {
            check_text(name)?;
        }
        if self.steps.is_empty() {
            return Err(InvalidSaga::NoSteps(self.name.clone()));
        }
        let mut seen = BTreeSet::new();
        if let Some(step) = names.clone().find(|name| !seen.insert(*name)) {
            return Err(InvalidSaga::TwoSteps {
                saga: self.name.clone(),
                step: step.clone(),
            });
        }
        let unsound = |step: &&Step<T>| step.timeout.is_zero() || step.timeout > MAX_TIMEOUT;
        match self.steps.iter().find(unsound) {
            Some(step) => Err(InvalidSaga::Timeout(step.name.clone())),
            None => Ok(()),
        }
    }
}

/// Can it be the value of a header, whatever the broker?
pub(super) fn check_text(text: &str) -> Result<(), InvalidSaga> {
    if text.is_empty() || text.len() > MAX_NAME || text.chars().any(char::is_control) {
        return Err(InvalidSaga::Name(text.to_owned()));
    }
    Ok(())
}

/// A saga: what an application starts and its consumer feeds. Cheap to clone; build one and keep it.
pub struct Saga<T> {
    pub(super) inner: Arc<Inner<T>>,
}

pub(super) struct Inner<T> {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) topic: String,
    pub(super) plan: Plan,
    /// Those of the plan's steps, in its order.
    functions: Vec<Functions<T>>,
    pub(super) outbox: Outbox,
}

impl<T> Inner<T> {
    /// What a step does. `None` if there is no such step.
    pub(super) fn functions(&self, step: &str) -> Option<&Functions<T>> {
        let steps = self.plan.steps.iter().zip(&self.functions);
        steps
            .into_iter()
            .find_map(|(planned, functions)| (planned.name == step).then_some(functions))
    }
}

impl<T> Clone for Saga<T> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
        }
    }
}

impl<T> fmt::Debug for Saga<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Saga")
            .field("name", &self.inner.name)
            .field("plan", &self.inner.plan)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(name: &str) -> Step<u32> {
        Step::new(name, |_| Event::new("shop", "commands"))
    }

    fn build(definition: Definition<u32>) -> Result<Saga<u32>, InvalidSaga> {
        definition.build(&Outbox::default())
    }

    #[test]
    fn a_definition_that_cannot_be_is_refused() {
        let order = || Saga::<u32>::define("order");
        let why = |definition| build(definition).expect_err("unsound");
        assert_eq!(why(order()), InvalidSaga::NoSteps("order".to_owned()));
        let twice = why(order().step(step("payment")).step(step("payment")));
        assert!(twice.to_string().contains("two steps `payment`"), "{twice}");
        let nameless = why(order().step(step("")));
        assert_eq!(nameless, InvalidSaga::Name(String::new()));
        let strange = why(order().address("a\nb", "c").step(step("payment")));
        assert_eq!(strange, InvalidSaga::Name("a\nb".to_owned()));
        for timeout in [Duration::ZERO, Duration::from_secs(201 * 86_400)] {
            let why = why(order().step(step("payment").timeout(timeout)));
            assert_eq!(why, InvalidSaga::Timeout("payment".to_owned()));
        }
    }

    #[test]
    fn a_sound_definition_knows_its_steps_by_name() {
        let saga = build(Saga::define("order").step(step("payment")).step(step("stock"))).expect("sound");
        assert!(saga.inner.functions("stock").is_some());
        assert!(saga.inner.functions("shipping").is_none());
        assert_eq!(
            (saga.inner.namespace.as_str(), saga.inner.topic.as_str()),
            ("sagas", "order")
        );
    }
}
