//! Reads `[retry]` into a policy.

use std::time::Duration;

use pillarbox::RetryPolicy;
use pillarbox::{Jitter, Schedule};

use super::raw;
use super::units::{Attempts, Span};

/// With fewer attempts, crashes of a worker alone can make an event dead.
const FEWEST_ATTEMPTS: u32 = 3;

/// The contradictions in one table: the keys and the errors.
pub(super) fn mistakes(raw: &raw::Retry) -> Vec<(&'static str, &'static str)> {
    let mut mistakes = Vec::new();
    if raw.steps.is_some() && (raw.base.is_some() || raw.max.is_some()) {
        mistakes.push((
            "steps",
            "`steps` sets every wait (remove `base` and `max`, or remove `steps`)",
        ));
    }
    if raw.steps.as_ref().is_some_and(Vec::is_empty) {
        mistakes.push((
            "steps",
            "`steps` is empty (add at least one wait, such as [\"1s\", \"5s\"])",
        ));
    }
    if raw.base.zip(raw.max).is_some_and(|(base, max)| base.0 > max.0) {
        mistakes.push(("max", "`max` must not be shorter than `base`"));
    }
    mistakes
}

/// A warning about a low `max_attempts`.
pub(super) fn warning(raw: &raw::Retry) -> Option<String> {
    match raw.max_attempts {
        Some(Attempts::AtMost(attempts)) if attempts < FEWEST_ATTEMPTS => Some(format!(
            "`max_attempts` is {attempts}: crashes of a worker may make an event dead (use {FEWEST_ATTEMPTS} or more)"
        )),
        Some(Attempts::AtMost(_) | Attempts::Unlimited) | None => None,
    }
}

/// A destination's keys take precedence. Its own type of schedule replaces the other type.
pub(super) fn merge(general: &raw::Retry, own: raw::Retry) -> raw::Retry {
    let doubling = own.base.is_some() || own.max.is_some();
    raw::Retry {
        steps: own
            .steps
            .clone()
            .or_else(|| general.steps.clone().filter(|_| !doubling)),
        base: own.base.or(general.base),
        max: own.max.or(general.max),
        max_attempts: own.max_attempts.or(general.max_attempts),
        jitter: own.jitter.or(general.jitter),
    }
}

/// A policy as it would be written in the file.
pub(super) fn of(policy: &RetryPolicy) -> raw::Retry {
    let mut raw = raw::Retry {
        max_attempts: Some(policy.limit().map_or(Attempts::Unlimited, Attempts::AtMost)),
        jitter: Some(match policy.spread() {
            Jitter::None => raw::Jitter::None,
            Jitter::Equal => raw::Jitter::Equal,
        }),
        ..raw::Retry::default()
    };
    match policy.schedule() {
        Schedule::Exponential { base, max } => {
            raw.base = Some(Span(*base));
            raw.max = Some(Span(*max));
        }
        Schedule::Steps(steps) => raw.steps = Some(steps.iter().copied().map(Span).collect()),
    }
    raw
}

/// The default schedule with the written values.
pub(super) fn policy(raw: &raw::Retry) -> RetryPolicy {
    let policy = match &raw.steps {
        Some(steps) => RetryPolicy::steps(steps.iter().map(|step| step.0).collect()),
        None => RetryPolicy::exponential(
            raw.base.map_or(Duration::from_secs(1), |span| span.0),
            raw.max.map_or(Duration::from_secs(3600), |span| span.0),
        ),
    };
    let policy = match raw.max_attempts {
        Some(Attempts::Unlimited) => policy,
        Some(Attempts::AtMost(attempts)) => policy.max_attempts(attempts),
        None => policy.max_attempts(RetryPolicy::default().limit().unwrap_or(25)),
    };
    match raw.jitter {
        None => policy,
        Some(raw::Jitter::None) => policy.jitter(Jitter::None),
        Some(raw::Jitter::Equal) => policy.jitter(Jitter::Equal),
    }
}
