//! The receiving service: a plain HTTP server on its own port that sometimes fails.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::failure::Failure;

/// How often the receiver is busy for an order that ends in 3.
const BUSY: u32 = 2;

/// How often each order was received.
type Seen = Arc<Mutex<HashMap<u64, u32>>>;

#[derive(Debug, Deserialize)]
struct Order {
    order: u64,
}

/// The running receiver.
pub(super) struct Receiver {
    address: SocketAddr,
    task: JoinHandle<std::io::Result<()>>,
}

impl Receiver {
    #[expect(clippy::disallowed_methods, reason = "the task of the sample receiver")]
    pub(super) async fn start() -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::failed(format!("receiver cannot listen: {error}"));
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let router = Router::new()
            .route("/orders", post(receive))
            .with_state(Seen::default());
        let task = tokio::spawn(axum::serve(listener, router).into_future());
        Ok(Self { address, task })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/orders", self.address)
    }

    /// Stops it. The dispatcher has stopped before, so no request is in flight.
    pub(super) async fn stop(self) {
        self.task.abort();
        self.task.await.ok();
    }
}

async fn receive(State(seen): State<Seen>, Json(Order { order }): Json<Order>) -> (StatusCode, String) {
    let times = {
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        let times = seen.entry(order).or_default();
        *times += 1;
        *times
    };
    answer(order, times)
}

fn answer(order: u64, times: u32) -> (StatusCode, String) {
    match order % 10 {
        3 if times <= BUSY => (
            StatusCode::SERVICE_UNAVAILABLE,
            "the warehouse is busy".to_owned(),
        ),
        5 => (
            StatusCode::UNPROCESSABLE_ENTITY,
            "we do not deliver to the moon".to_owned(),
        ),
        _ => (StatusCode::OK, format!("order {order} noted")),
    }
}
