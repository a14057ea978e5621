//! The callback sink: the place is a list in this process.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use pillarbox::{Delivery, Event, Sink};
use pillarbox_sinks::{Callback, CallbackError, headers};
use pillarbox_testkit::Skipped;
use pillarbox_testkit::sink_suite::{Arrived, Attributes, Harness};

#[derive(Default)]
struct CallbackHarness {
    taken: Arc<Mutex<Vec<Delivery>>>,
}

impl CallbackHarness {
    async fn fresh() -> Self {
        Self::default()
    }

    fn callback(
        &self,
    ) -> Callback<impl Fn(Delivery) -> BoxFuture<'static, Result<(), CallbackError>> + use<>> {
        let taken = self.taken.clone();
        Callback::new(move |delivery: Delivery| {
            let taken = taken.clone();
            let take = async move {
                if delivery.event.event_type.as_deref() == Some("Poison") {
                    return Err(CallbackError::reject("not wanted"));
                }
                tokio::task::yield_now().await;
                taken.lock().unwrap().push(delivery);
                Ok(())
            };
            take.boxed()
        })
    }
}

#[async_trait]
impl Harness for CallbackHarness {
    async fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(self.callback())
    }

    async fn arrived(&self) -> Vec<Arrived> {
        let taken = self.taken.lock().unwrap().clone();
        let arrived = |delivery: &Delivery| Arrived {
            id: delivery.event.id,
            headers: headers::of(delivery)
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value.into_owned()))
                .collect(),
            payload: delivery.event.payload.as_bytes().clone(),
            content_type: delivery.event.media_type().to_owned(),
            content_encoding: delivery.event.content_encoding.clone(),
        };
        taken.iter().map(arrived).collect()
    }

    fn when_gone(&self) -> &'static str {
        "retry"
    }

    async fn go_away(&self) -> Result<(), Skipped> {
        Err(Skipped("a function in the same process cannot go away"))
    }

    async fn come_back(&self) {}

    async fn fall_silent(&self) -> Result<(), Skipped> {
        Err(Skipped("a function in the same process has no connection"))
    }

    async fn cut(&self) {}

    fn poison(&self) -> Result<Event, Skipped> {
        Ok(Event::new("shop", "orders").event_type("Poison"))
    }

    async fn with_wrong_password(&self) -> Result<(Arc<dyn Sink>, String), Skipped> {
        Err(Skipped("a function asks for no password"))
    }

    async fn with_tls(&self, _: bool) -> Result<Arc<dyn Sink>, Skipped> {
        Err(Skipped("a function speaks no TLS"))
    }

    async fn with_headers(&self, _: &[(&str, &str)]) -> Result<Arc<dyn Sink>, Skipped> {
        Err(Skipped("a function is not configured"))
    }

    async fn with_keys(&self, keys: &str) -> Result<Arc<dyn Sink>, Skipped> {
        let sink = self.callback();
        match keys {
            "" => Ok(Arc::new(sink)),
            "compressed = true" => Ok(Arc::new(sink.compressed())),
            "max_decompressed = \"64KiB\"" => Ok(Arc::new(sink.max_decompressed(64 * 1024))),
            _ => Err(Skipped("a function gets the event itself, not a message")),
        }
    }

    fn attributes(&self) -> Option<Attributes> {
        None
    }
}

mod suite {
    pillarbox_testkit::sink_suite!(super::CallbackHarness::fresh);
}
