//! Is what an inbox remembers old enough?
//!
//! A mark that is forgotten while its event may still come lets it be handled twice. An event comes again as long as the
//! dispatcher retries it, and whenever a person replays it.

use std::time::Duration;

use super::Inbox;
use crate::retry::RetryPolicy;

/// The inbox forgets before the last delivery that is to be expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the inbox forgets after {}, but an event may come again {}; what comes later than that is handled twice: keep \
     marks longer, or retry and replay for a shorter time",
    days(*.kept),
    match .needed {
        Some(needed) => format!("up to {} later", days(*needed)),
        None => "at any time, since it is retried for ever".to_owned(),
    }
)]
pub struct TooShort {
    /// For how long a mark is kept.
    pub kept: Duration,
    /// For how long it is needed; none if there is no end.
    pub needed: Option<Duration>,
}

fn days(duration: Duration) -> String {
    format!("{:.1} days", duration.as_secs_f64() / 86_400.0)
}

impl Inbox {
    /// Does a mark last as long as an event may be on its way: retried by this policy, and replayed up to this age? To be
    /// asked, and told, when a consumer starts.
    ///
    /// # Errors
    /// When it does not.
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
        assert!(said.contains("forgets after 1.0 days,"), "{said}");
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
