//! One command starts everything and keeps it running.

use std::process::Stdio;
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::world::{PATIENT, World, until};

const README: &str = include_str!("../../README.md");

/// What `shop up` has said so far.
type Said = Arc<Mutex<Vec<String>>>;

fn process_of(said: &Said, service: &str) -> Option<Pid> {
    let said = said.lock().unwrap();
    let line = said
        .iter()
        .rfind(|line| line.starts_with(&format!("{service} ")))?;
    let (_, number) = line.split_once("is process ")?;
    Pid::from_raw(number.parse().ok()?)
}

fn has_said(said: &Said, words: &str) -> bool {
    said.lock().unwrap().iter().any(|line| line.contains(words))
}

/// What the README says that it prints, below this heading.
async fn says_the_story(said: &Said, heading: &str) {
    let (_, rest) = README.split_once(heading).expect("the heading is there");
    let (_, rest) = rest.split_once("```text\n").expect("the block begins");
    let (block, _) = rest.split_once("```").expect("the block ends");
    for line in block.lines() {
        until(line, || async {
            said.lock().unwrap().iter().any(|said| said == line)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_command_starts_everything_restarts_what_dies_and_ends_it_all() {
    let world = World::open(PATIENT).await;
    let mut up = world
        .shop(&["up"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let said = Said::default();
    let mut lines = BufReader::new(up.stdout.take().unwrap()).lines();
    let heard = said.clone();
    let listening = tokio::spawn(async move {
        while let Some(line) = lines.next_line().await.unwrap() {
            heard.lock().unwrap().push(line);
        }
    });
    until("the shop is open", || async {
        has_said(&said, "the shop is open")
    })
    .await;
    world.order(&[]).await;
    says_the_story(&said, "## All is well").await;
    world.order(&["--card", "expired"]).await;
    world.order(&["--item", "unicorn"]).await;
    world.order(&["--address", "nowhere"]).await;
    says_the_story(&said, "## A step refuses").await;

    // By the fault switch, and by hand.
    world.run(&["fault", "stock", "crash"]).await;
    world.order(&[]).await;
    until("the stock has crashed", || async {
        has_said(&said, "(signal 6)")
    })
    .await;
    let first = process_of(&said, "payment").unwrap();
    kill_process(first, Signal::KILL).unwrap();
    world.order(&[]).await;
    until("all are completed", || async {
        world
            .count("select count(*) from shop.orders where status = 'confirmed'")
            .await
            == 3
    })
    .await;
    until("payment is started again", || async {
        has_said(&said, "(signal 9); starting it again")
    })
    .await;

    kill_process(
        Pid::from_raw(i32::try_from(up.id().unwrap()).unwrap()).unwrap(),
        Signal::INT,
    )
    .unwrap();
    assert!(up.wait().await.unwrap().success());
    listening.await.unwrap();
    assert!(has_said(&said, "the shop is closed"));
    for service in crate::world::SERVICES {
        let process = process_of(&said, service).unwrap();
        assert!(test_kill_process(process).is_err(), "{service} still runs");
    }
    world.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn services_do_not_outlive_whoever_started_them() {
    let world = World::open(PATIENT).await;
    let mut up = world.shop(&["up"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(up.stdout.take().unwrap()).lines();
    let said = Said::default();
    while crate::world::SERVICES
        .iter()
        .any(|service| process_of(&said, service).is_none())
    {
        let line = lines.next_line().await.unwrap().expect("it goes on");
        said.lock().unwrap().push(line);
    }
    world.order(&[]).await;
    world.at_rest().await;
    up.kill().await.unwrap();
    until("all have ended", || async {
        let mut services = crate::world::SERVICES.iter();
        services.all(|service| test_kill_process(process_of(&said, service).unwrap()).is_err())
    })
    .await;
    world.close().await;
}
