//! The dispatcher, and a function in place of the broker's exchange `family-hub.events`.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::{RetryPolicy, Wake};
use pillarbox_dispatch::{Destination, Dispatcher, Policy, SettingsError};
use pillarbox_sinks::Callback;
use pillarbox_store::stores::sqlite::Sqlite;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Waits in seconds before each retry. The last one repeats without limit.
const WAITS: [u64; 7] = [1, 2, 5, 15, 60, 300, 900];

/// Returns a dispatcher, and a channel with one line per published event.
pub(crate) fn publisher(
    store: Sqlite,
    wake: Wake,
) -> Result<(Dispatcher, UnboundedReceiver<String>), SettingsError> {
    let (published, lines) = unbounded_channel();
    let exchange = Callback::new(move |delivery| {
        let published = published.clone();
        async move {
            let event = &delivery.event;
            let payload: serde_json::Value = serde_json::from_slice(event.payload.as_bytes())?;
            let routing_key = event.event_type.as_deref().unwrap_or_default();
            published.send(format!(
                "family-hub.events <- {routing_key} v{}: {}",
                event.event_version, payload["email"]["value"]
            ))?;
            Ok(())
        }
    });
    let policy = Policy::default()
        .retry(RetryPolicy::steps(WAITS.map(Duration::from_secs).to_vec()))
        .timeout(Duration::from_secs(10));
    let dispatcher = Dispatcher::builder(Arc::new(store))
        .wake(wake)
        .destination(Destination::new("family-hub.events", exchange).policy(policy))
        .build()?;
    Ok((dispatcher, lines))
}
