//! Takes orders: ten quickly, which show everything within seconds, then slowly.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use pillarbox_store::operate::Stats;
use pillarbox_store::{Actor, Operate, Scope};
use tokio_util::sync::CancellationToken;

use super::report::print;
use super::shop::Shop;
use crate::failure::Failure;

/// The orders that come quickly: one of each kind.
const RUSH: u64 = 10;
const RUSH_PACE: Duration = Duration::from_millis(250);
const PACE: Duration = Duration::from_secs(3);
/// How often the counts are read while events are in flight.
const POLL: Duration = Duration::from_millis(50);

/// What the scenario needs.
pub(super) struct Scenario {
    pub(super) shop: Shop,
    pub(super) operate: Arc<dyn Operate>,
    pub(super) actor: Actor,
    /// The shop's file, for the suggested commands.
    pub(super) file: String,
    /// Where the API listens.
    pub(super) address: SocketAddr,
}

impl Scenario {
    /// Takes orders until all are taken or the shutdown begins.
    pub(super) async fn run(
        &self,
        orders: Option<u64>,
        exit_when_done: bool,
        shutdown: &CancellationToken,
    ) -> Result<(), Failure> {
        let rush = orders.map_or(RUSH, |most| most.min(RUSH));
        for _ in 0..rush {
            self.shop.take_order().await?;
            if !rest(RUSH_PACE, shutdown).await {
                return Ok(());
            }
        }
        if !self.settled(shutdown).await? {
            return Ok(());
        }
        self.summary().await?;
        let mut taken = rush;
        while orders.is_none_or(|most| taken < most) {
            self.shop.take_order().await?;
            taken += 1;
            if !rest(PACE, shutdown).await {
                return Ok(());
            }
        }
        if !(exit_when_done && self.settled(shutdown).await?) {
            shutdown.cancelled().await;
        }
        Ok(())
    }

    /// Waits until every event is delivered or dead. False if the shutdown begins before.
    async fn settled(&self, shutdown: &CancellationToken) -> Result<bool, Failure> {
        loop {
            let stats = self.stats().await?;
            if stats.pending + stats.processing == 0 {
                return Ok(true);
            }
            if !rest(POLL, shutdown).await {
                return Ok(false);
            }
        }
    }

    async fn stats(&self) -> Result<Stats, Failure> {
        Ok(self.operate.stats(&self.actor, &Scope::All).await?)
    }

    async fn summary(&self) -> Result<(), Failure> {
        let stats = self.stats().await?;
        let Self { file, address, .. } = self;
        // The command as it was started: after `cargo run` there is no `pillarbox` on the path.
        let pillarbox = std::env::args().next().unwrap_or_else(|| "pillarbox".to_owned());
        print(&format!(
            "\nSo far: {} events delivered, {} dead, none of orders that rolled back.\n\
             Try in another terminal:\n  \
             curl http://{address}/api/v1/stats\n  \
             {pillarbox} events ls --database {file}\n  \
             {pillarbox} events ls --database {file} --status dead\n  \
             {pillarbox} events retry --database {file} --dead\n  \
             {pillarbox} enqueue shop orders '{{\"order\": 1000}}' --database {file}\n\
             Ctrl-C stops. `{pillarbox} init` writes a configuration for your own database and broker.\n",
            stats.delivered, stats.dead
        ));
        Ok(())
    }
}

/// Waits. False if the shutdown begins meanwhile.
#[expect(clippy::disallowed_methods, reason = "the pauses of the sample shop")]
async fn rest(time: Duration, shutdown: &CancellationToken) -> bool {
    tokio::select! {
        () = tokio::time::sleep(time) => true,
        () = shutdown.cancelled() => false,
    }
}
