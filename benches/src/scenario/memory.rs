//! Peak memory of the daemon while it drains many small events, and large ones whose total far exceeds its limit.

use super::Context;
use crate::daemon::Daemon;
use crate::failure::Failure;
use crate::ours::Ours;
use crate::report::{Measurement, Target};

pub(super) async fn measure(context: &Context<'_>) -> Result<Vec<Measurement>, Failure> {
    let ours = Ours::new(context.database).await?;
    let small = context.scale.small();
    ours.backlog().refill(small, "small").await?;
    let peak = drain(context, &ours, small).await?;
    let small = Measurement::new(
        "memory",
        (peak, "MB"),
        ("the limit while draining small events", 100.0),
        Target::AtMost(1.0),
    )
    .detail("rows", small);

    let large = context.scale.large();
    ours.backlog().refill_large(large).await?;
    let peak = drain(context, &ours, large).await?;
    let large = Measurement::new(
        "memory-large",
        (peak, "MB"),
        ("the limit while draining events of 1 MiB", 200.0),
        Target::AtMost(1.0),
    )
    .detail("rows", large);
    Ok(vec![small, large])
}

async fn drain(context: &Context<'_>, ours: &Ours<'_>, rows: u32) -> Result<f64, Failure> {
    let mut daemon = Daemon::start(context.daemon, context.database)?;
    daemon.drained(context.database).await?;
    let peak = daemon.peak_memory()?;
    daemon.kill().await?;
    ours.backlog().verify(rows).await?;
    eprintln!("  {rows} rows: {peak:.1} MB");
    Ok(peak)
}
