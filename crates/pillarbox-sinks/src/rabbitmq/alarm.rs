//! Whether the broker blocks publishers, because it is short of memory or disk.
//!
//! Most alarms are short. RabbitMQ compares its memory with the limit every 2.5 seconds, and one garbage collection may end the
//! alarm. So messages wait for [`PATIENCE`] before they are throttled. A throttled message opens the breaker, and every row that
//! waits for the destination is released and claimed again.
//!
//! **If we die here** the messages that waited were never sent.

use std::time::Duration;

use futures_util::StreamExt;
use lapin::Event;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::dial;
use super::settings::Settings;

/// How long messages wait for the end of an alarm: two checks of the broker's memory.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// The alarm of one connection.
#[derive(Clone)]
pub(super) struct Alarm {
    since: watch::Receiver<Option<Instant>>,
}

impl Alarm {
    /// Starts to listen, and logs when the broker blocks the connection. The task ends with the connection, or with `tasks`.
    pub(super) fn listen(
        connection: &lapin::Connection,
        settings: &Settings,
        tasks: &mut JoinSet<()>,
    ) -> Self {
        let (sender, since) = watch::channel(None);
        let (destination, host) = (settings.name.clone(), dial::host(settings));
        let mut events = Box::pin(connection.events_listener());
        tasks.spawn(async move {
            while let Some(event) = events.next().await {
                match event {
                    Event::ConnectionBlocked(reason) => {
                        sender.send_replace(Some(Instant::now()));
                        tracing::warn!(destination, host, reason, "broker blocks publishers");
                    }
                    Event::ConnectionUnblocked => {
                        let since = sender.send_replace(None);
                        let blocked_for = since.map(|since| since.elapsed());
                        tracing::info!(destination, host, ?blocked_for, "broker unblocked publishers");
                    }
                    _ => {}
                }
            }
        });
        Self { since }
    }

    /// Has it lasted for so long that messages should not wait for its end?
    pub(super) fn lasts(&self) -> bool {
        self.since
            .borrow()
            .is_some_and(|since| since.elapsed() >= PATIENCE)
    }

    /// Waits until it begins or ends.
    pub(super) async fn changed(&mut self) {
        if self.since.changed().await.is_err() {
            std::future::pending().await // the connection has ended
        }
    }
}
