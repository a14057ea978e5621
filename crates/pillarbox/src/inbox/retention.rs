//! Checks that an inbox keeps its marks long enough.
//!
//! If a mark is pruned while its event may still be delivered, the event is handled twice. An event is delivered again as
//! long as the dispatcher retries it, and whenever an operator replays it.

use std::time::Duration;

use super::Inbox;
use crate::retry::RetryPolicy;

/// The inbox prunes a mark before the last possible delivery of its event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "inbox keeps marks for {}, but an event may be delivered again {}: it would be handled twice (keep marks longer, \
     or retry and replay for a shorter time)",
    days(*.kept),
    match .needed {
        Some(needed) => format!("up to {} later", days(*needed)),
        None => "at any time, since it is retried for ever".to_owned(),
    }
)]
pub struct TooShort {
    /// How long a mark is kept.
    pub kept: Duration,
    /// How long it is needed; `None` is for ever.
    pub needed: Option<Duration>,
}

fn days(duration: Duration) -> String {
    format!("{:.1} days", duration.as_secs_f64() / 86_400.0)
}

impl Inbox {
    /// Is a mark kept as long as an event may be retried by this policy and replayed up to this age? Check it when a
    /// consumer starts.
    ///
    /// # Errors
    /// When it is not.
    pub fn outlasts(&self, retry: &RetryPolicy, replay: Duration) -> Result<(), TooShort> {
        let needed = retry.longest().map(|longest| longest.saturating_add(replay));
        if needed.is_some_and(|needed| needed < self.keep) {
            return Ok(());
        }
        Err(TooShort {
            kept: self.keep,
            needed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    #[test]
    fn thirty_days_outlast_the_default_policy_and_two_weeks_of_replay() {
        assert_eq!(
            Inbox::default().outlasts(&RetryPolicy::default(), 14 * DAY),
            Ok(())
        );
    }

    #[test]
    fn what_is_too_short_says_by_how_much() {
        let inbox = Inbox::default().keep(DAY);
        let policy = RetryPolicy::steps(vec![DAY / 2]).max_attempts(3);
        let short = inbox.outlasts(&policy, DAY / 2).expect_err("a day is too short");
        assert_eq!(short.needed, Some(DAY * 3 / 2));
        let said = short.to_string();
        assert!(said.contains("keeps marks for 1.0 days,"), "{said}");
        assert!(said.contains("up to 1.5 days later"), "{said}");
    }

    #[test]
    fn nothing_outlasts_a_policy_without_an_end() {
        let policy = RetryPolicy::steps(vec![DAY]);
        let short = Inbox::default()
            .outlasts(&policy, Duration::ZERO)
            .expect_err("for ever");
        assert!(short.to_string().contains("for ever"), "{short}");
    }
}
