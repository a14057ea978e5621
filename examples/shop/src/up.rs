//! `shop up`: starts every service in its own process, restarts those that die, and stops all of them on a signal.
//!
//! **If we die here** the services see the end of their standard input and exit too.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::environment::Environment;
use crate::services::Service;
use crate::watch::Watch;
use crate::{Result, signals};

/// The wait before a restart. It keeps a service that cannot start from looping.
const PAUSE: Duration = Duration::from_millis(500);
/// How long a service may take to finish its work in flight.
const GRACE: Duration = Duration::from_secs(15);

pub(crate) async fn up(environment: &Environment) -> Result<()> {
    environment.migrate().await?;
    let shutdown = signals::shutdown(false)?;
    let watch = Watch::begin(environment.pool()?).await?;
    let mut running = JoinSet::new();
    for service in Service::ALL {
        running.spawn(keep_running(service, environment.clone(), shutdown.clone()));
    }
    running.spawn(watch.run(shutdown.clone()));
    println!("the shop is open: place orders with `shop order` in another terminal; Ctrl-C closes it");
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

async fn keep_running(service: Service, environment: Environment, shutdown: CancellationToken) -> Result<()> {
    while !shutdown.is_cancelled() {
        let mut process = start(service, &environment)?;
        // Taken out, because `wait` closes the standard input of the process first.
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
                println!("{service:<13} exited ({}); restarting", why(ended?));
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

fn start(service: Service, environment: &Environment) -> Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["serve", service.as_str(), "--until-stdin-ends"])
        .envs(environment.log_in_as(service.as_str()).variables())
        .stdin(Stdio::piped())
        .process_group(0) // Ctrl-C reaches only `up`, which then stops the services
        .kill_on_drop(true);
    Ok(command.spawn()?)
}

/// Waits for a process whose standard input was closed. Kills it after the grace time.
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
