//! One log line per connection established, lost and recovered. A long outage is logged once a minute.
//!
//! The lines name the destination or the consumer, and the host. They never have a URL, because it may hold a password.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How often an outage that lasts is logged again.
const REPEAT: Duration = Duration::from_secs(60);

/// Logs what happens to one connection. For consumers too.
#[doc(hidden)]
#[derive(Debug)]
pub struct ConnectionLog {
    destination: Option<String>,
    consumer: Option<String>,
    host: String,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// Not connected before.
    New,
    Connected,
    /// Not connected, and when that was last logged.
    Down {
        /// Was there a connection before?
        lost: bool,
        logged: Option<Instant>,
    },
}

impl ConnectionLog {
    /// Of a destination. `host` must not hold a secret.
    pub fn of_destination(name: &str, host: String) -> Self {
        Self {
            destination: Some(name.to_owned()),
            consumer: None,
            host,
            state: Mutex::new(State::New),
        }
    }

    /// Of a consumer. `host` must not hold a secret.
    pub fn of_consumer(name: &str, host: String) -> Self {
        Self {
            destination: None,
            consumer: Some(name.to_owned()),
            host,
            state: Mutex::new(State::New),
        }
    }

    /// The connection works. May be called often. No sink connects to a server that it does not verify, so an encrypted
    /// connection is verified too.
    pub fn connected(&self, is_encrypted: bool) {
        let before = std::mem::replace(&mut *self.state(), State::Connected);
        let message = match before {
            State::Connected => return,
            State::Down { lost: true, .. } => "connection recovered",
            State::New | State::Down { lost: false, .. } => "connected",
        };
        tracing::info!(
            destination = self.destination,
            consumer = self.consumer,
            host = self.host,
            encrypted = is_encrypted,
            verified = is_encrypted,
            "{message}"
        );
    }

    /// The connection was lost. `error` must not hold a secret.
    pub fn lost(&self, error: Option<&str>) {
        let mut state = self.state();
        if !matches!(*state, State::Connected) {
            return;
        }
        *state = State::Down {
            lost: true,
            logged: None,
        };
        drop(state);
        tracing::info!(
            destination = self.destination,
            consumer = self.consumer,
            host = self.host,
            error,
            "connection lost; reconnecting"
        );
    }

    /// The connection was lost, or an attempt to connect failed. `error` must not hold a secret.
    pub fn down(&self, error: &str) {
        let is_connected = matches!(*self.state(), State::Connected);
        match is_connected {
            true => self.lost(Some(error)),
            false => self.failed(error),
        }
    }

    /// An attempt to connect failed. `error` must not hold a secret.
    pub fn failed(&self, error: &str) {
        let mut state = self.state();
        let (lost, logged) = match *state {
            State::New => (false, None),
            State::Connected => (true, None),
            State::Down { lost, logged } => (lost, logged),
        };
        if logged.is_some_and(|at| at.elapsed() < REPEAT) {
            return;
        }
        *state = State::Down {
            lost,
            logged: Some(Instant::now()),
        };
        drop(state);
        tracing::warn!(
            destination = self.destination,
            consumer = self.consumer,
            host = self.host,
            error,
            "not connected; retrying"
        );
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillarbox_testkit::CapturedLogs;

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_logged_when_it_is_established_lost_and_recovered() {
        let logs = CapturedLogs::start();
        let log = ConnectionLog::of_destination("queue", "mq:5672".to_owned());
        log.lost(None); // there was none
        for _ in 0..3 {
            log.connected(true);
        }
        log.lost(Some("connection reset"));
        log.lost(None);
        for _ in 0..180 {
            log.failed("connection refused (mq:5672)");
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        log.connected(true);
        let lines = logs.lines();
        let messages: Vec<&str> = lines.iter().map(|line| line.message.as_str()).collect();
        let retrying = "not connected; retrying";
        assert_eq!(
            messages,
            [
                "connected",
                "connection lost; reconnecting",
                retrying,
                retrying,
                retrying,
                "connection recovered"
            ]
        );
        assert!(
            lines
                .iter()
                .all(|line| line.field("destination") == Some("queue")
                    && line.field("host") == Some("mq:5672"))
        );
        assert_eq!(lines[1].field("error"), Some("connection reset"));
        assert_eq!(lines[0].field("encrypted"), Some("true"));
        assert_eq!(lines[0].field("verified"), Some("true"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_first_connection_that_fails_is_not_called_lost() {
        let logs = CapturedLogs::start();
        let log = ConnectionLog::of_consumer("letters", "mq:5672".to_owned());
        log.failed("connection refused (mq:5672)");
        log.lost(None);
        log.connected(false);
        let messages: Vec<String> = logs.lines().into_iter().map(|line| line.message).collect();
        assert_eq!(messages, ["not connected; retrying", "connected"]);
    }
}
