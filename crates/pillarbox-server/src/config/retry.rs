//! When to try again: from what was written to a policy.

use std::time::Duration;

use pillarbox::RetryPolicy;
use pillarbox::retry::{Jitter, Schedule};

use super::raw;
use super::units::{Attempts, Span};

/// Below three attempts a crash of its worker alone can make an innocent event dead.
const FEWEST_ATTEMPTS: u32 = 3;

/// What cannot be meant in one table: the key, and what to do.
pub(super) fn mistake(raw: &raw::Retry) -> Option<(&'static str, &'static str)> {
    if raw.steps.is_some() && (raw.base.is_some() || raw.max.is_some()) {
        return Some((
            "steps",
            "`steps` says every wait; remove `base` and `max`, or remove `steps`",
        ));
    }
    if raw.steps.as_ref().is_some_and(Vec::is_empty) {
        return Some((
            "steps",
            "`steps` is empty; write at least one wait, such as [\"1s\", \"5s\"]",
        ));
    }
    match (raw.base, raw.max) {
        (Some(base), Some(max)) if base.0 > max.0 => Some(("max", "`max` must not be shorter than `base`")),
        (Some(_) | None, Some(_) | None) => None,
    }
}

/// What may harm, about `max_attempts`.
pub(super) fn warning(raw: &raw::Retry) -> Option<String> {
    match raw.max_attempts {
        Some(Attempts::AtMost(attempts)) if attempts < FEWEST_ATTEMPTS => Some(format!(
            "`max_attempts` is {attempts}: a crash may make an innocent event dead; {FEWEST_ATTEMPTS} or more keep the \
             promise"
        )),
        Some(Attempts::AtMost(_) | Attempts::Unlimited) | None => None,
    }
}

/// A destination's own keys win; its own kind of schedule drives out the other kind.
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

/// A policy as it would be written.
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

/// Pillarbox's own schedule, with what was written in its place.
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
