//! Starts every service in a process of its own, starts those again that die, and ends all of them when it is told to.
//!
//! **If we die here** the services see the end of their standard input, and end as well.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::places::Places;
use crate::services::Service;
use crate::watch::Watch;
use crate::{Result, signals};

/// Before a service is started again: one that cannot start must not do so a thousand times in a second.
const PAUSE: Duration = Duration::from_millis(500);
/// How long a service may take to finish what it does.
const GRACE: Duration = Duration::from_secs(15);

pub(crate) async fn up(places: &Places) -> Result<()> {
    places.migrate().await?;
    let shutdown = signals::shutdown(false)?;
    let watch = Watch::begin(places.pool()?).await?;
    let mut running = JoinSet::new();
    for service in Service::ALL {
        running.spawn(keep_running(service, places.clone(), shutdown.clone()));
    }
    running.spawn(watch.run(shutdown.clone()));
    println!("the shop is open: place orders by `shop order` in another terminal; Ctrl-C closes it");
    let mut result = Ok(());
    while let Some(ended) = running.join_next().await {
        if let Err(error) = ended? {
            shutdown.cancel();
            result = Err(error);
        }
    }
    println!("the shop is closed");
    result
}

async fn keep_running(service: Service, places: Places, shutdown: CancellationToken) -> Result<()> {
    while !shutdown.is_cancelled() {
        let mut process = start(service, &places)?;
        // Apart, because waiting for a process closes its standard input first.
        let stdin = process.stdin.take();
        let id = process.id().unwrap_or_default();
        println!("{service:<13} is process {id}");
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {
                drop(stdin);
                return stop(process).await;
            }
            ended = process.wait() => {
                println!("{service:<13} has ended ({}); starting it again", why(ended?));
            }
        }
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            () = sleep(PAUSE) => {}
        }
    }
    Ok(())
}

fn start(service: Service, places: &Places) -> Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["serve", service.as_str(), "--until-stdin-ends"])
        .envs(places.environment())
        .stdin(Stdio::piped())
        .process_group(0) // Ctrl-C is for us: we say when
        .kill_on_drop(true);
    Ok(command.spawn()?)
}

/// It was asked by the end of its standard input; insists when the grace period is over.
async fn stop(mut process: Child) -> Result<()> {
    if timeout(GRACE, process.wait()).await.is_err() {
        process.kill().await?;
    }
    Ok(())
}

fn why(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("signal {signal}"),
        (None, code) => format!("exit code {}", code.unwrap_or_default()),
    }
}
