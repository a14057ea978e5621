//! One command starts all services and keeps them running.

use std::process::Stdio;

use pillarbox_testkit::process::{Process, Signal};
use pillarbox_testkit::wait::until_some;
use rustix::process::{Pid, kill_process, test_kill_process};

use crate::fixture::{Fixture, LONG_TIMEOUT, until};

const README: &str = include_str!("../../README.md");

fn process_of(up: &Process, service: &str) -> Option<Pid> {
    let stdout = up.stdout();
    let line = stdout
        .lines()
        .rfind(|line| line.starts_with(&format!("{service} ")))?;
    let (_, number) = line.split_once("is process ")?;
    Pid::from_raw(number.parse().ok()?)
}

async fn until_printed(up: &Process, words: &str) {
    until(words, async || up.stdout().contains(words)).await;
}

fn start(fixture: &Fixture) -> Process {
    let mut command = fixture.shop(&["up"]);
    command.stdin(Stdio::null());
    Process::start(command)
}

/// Waits until it has printed the lines of the README below this heading.
async fn until_printed_as_in_readme(up: &Process, heading: &str) {
    let (_, rest) = README.split_once(heading).expect("the heading exists");
    let (_, rest) = rest.split_once("```text\n").expect("the block begins");
    let (block, _) = rest.split_once("```").expect("the block ends");
    for line in block.lines() {
        until(line, async || up.stdout().lines().any(|printed| printed == line)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_command_starts_all_services_restarts_them_and_stops_them() {
    let fixture = Fixture::open(LONG_TIMEOUT).await;
    let mut up = start(&fixture);
    until_printed(&up, "the shop is open").await;
    fixture.order(&[]).await;
    until_printed_as_in_readme(&up, "## All is well").await;
    fixture.order(&["--card", "expired"]).await;
    fixture.order(&["--item", "unicorn"]).await;
    fixture.order(&["--address", "nowhere"]).await;
    until_printed_as_in_readme(&up, "## A step refuses").await;

    // By the fault switch, and by `kill`.
    fixture.run(&["fault", "stock", "crash"]).await;
    fixture.order(&[]).await;
    until_printed(&up, "(signal 6)").await;
    let first = process_of(&up, "payment").unwrap();
    kill_process(first, Signal::KILL).unwrap();
    fixture.order(&[]).await;
    until("all are completed", || async {
        fixture
            .count("select count(*) from shop.orders where status = 'confirmed'")
            .await
            == 3
    })
    .await;
    until_printed(&up, "(signal 9); restarting").await;

    up.signal(Signal::INT);
    assert!(up.exit().await.success());
    assert!(up.stdout().contains("the shop is closed"));
    for service in crate::fixture::SERVICES {
        let process = process_of(&up, service).unwrap();
        assert!(test_kill_process(process).is_err(), "{service} still runs");
    }
    fixture.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn services_end_with_the_process_that_started_them() {
    let fixture = Fixture::open(LONG_TIMEOUT).await;
    let up = start(&fixture);
    let pids = until_some("all services are started", async || {
        let pids = crate::fixture::SERVICES
            .iter()
            .map(|service| process_of(&up, service));
        pids.collect::<Option<Vec<Pid>>>()
    })
    .await;
    fixture.order(&[]).await;
    fixture.until_idle().await;
    up.kill();
    until("all services have ended", async || {
        pids.iter().all(|pid| test_kill_process(*pid).is_err())
    })
    .await;
    fixture.close().await;
}
