//! Every key in order at every destination, whatever happens to the workers.
//!
//! 64 keys, routes that fan out, one send in twenty refused, and writers that race. Workers are killed and frozen
//! past their leases until the load ends. `PILLARBOX_TEST_CHAOS_SECONDS` says for how long.

use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use uuid::Uuid;

use super::books;
use super::crew::{Crew, Faults};
use super::daemon::Daemon;
use super::patience::{Turn, Weight};
use super::shop::{self, HOOK, Load, Reckoning};
use super::world::{Tuning, World};
use crate::receiver::{Mood, Receiver};

/// Fewer events than these in each second prove nothing.
const EVENTS_A_SECOND: u64 = 20;
/// After the load: what lost its worker twice comes back one by one.
const DRAIN: Duration = Duration::from_secs(120);

/// For how long there are faults: so long in CI, and as long as somebody likes.
fn length(seconds: u64) -> Duration {
    let asked = std::env::var("PILLARBOX_TEST_CHAOS_SECONDS").ok();
    let seconds = asked.map_or(seconds, |text| text.parse().expect("a number of seconds"));
    Duration::from_secs(seconds)
}

fn judge(test: &str, length: Duration, faults: &Faults, reckoning: &Reckoning) {
    println!("{test}: {reckoning}; {faults}");
    let events = u64::try_from(reckoning.events).expect("a count");
    assert!(
        events >= EVENTS_A_SECOND * length.as_secs(),
        "there was no load: {reckoning}"
    );
    assert!(reckoning.rows > reckoning.events, "nothing went to two places");
    assert!(
        reckoning.all_duplicates() <= faults.in_flight,
        "more came again than was in flight: {reckoning}; {faults}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_workers_that_are_killed_and_frozen_keep_every_key_in_order() {
    let length = length(40);
    let world = World::new(Weight::Heavy).await;
    let hook = Receiver::start(Mood::Stumbles);
    let books = books::Postgres::open(world.pool.clone()).await;
    let tuning = Tuning {
        in_flight: 64,
        more: format!("{}{}", hook.destination(HOOK), shop::routes("broker")),
        ..Tuning::hasty()
    };
    let load = Load::start(&books, 2);
    let mut crew = Crew::hire(&books, 4, || world.start(&tuning));
    crew.suffer(length).await;
    load.stop().await;
    hook.becomes(Mood::Answers);
    shop::done(&books, DRAIN).await;
    let faults = crew.dismiss().await;

    let broker: Vec<Uuid> = world
        .queue
        .read()
        .await
        .iter()
        .map(|message| message.id)
        .collect();
    let reckoning = shop::reckon(&books, ("broker", &broker), &hook.ledger()).await;
    judge("four workers", length, &faults, &reckoning);
    world.remove().await;
}

/// One daemon after another on a SQLite file. What each prints is the ledger of its log.
struct Folder {
    dir: TempDir,
    started: std::cell::Cell<usize>,
}

impl Folder {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().expect("a folder"),
            started: std::cell::Cell::new(0),
        }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn configure(&self, more: &str) {
        let config = format!(
            "[database]\nurl = \"{}\"\n\
             [dispatch]\nlease = \"2s\"\ntimeout = \"1s\"\npoll_interval = \"100ms\"\nbatch = 32\nmax_in_flight = 64\n\
             [retry]\nbase = \"100ms\"\nmax = \"1s\"\nmax_attempts = 25\n\
             [http]\nlisten = \"127.0.0.1:0\"\n\
             [[destination]]\nname = \"log\"\ntype = \"log\"\n{more}",
            self.path().join("outbox.db").display()
        );
        std::fs::write(self.path().join("pillarbox.toml"), config).expect("the folder can be written to");
    }

    fn start(&self) -> Daemon {
        let number = self.started.replace(self.started.get() + 1);
        Daemon::start(&self.path().join("pillarbox.toml"), self.log(number), &[])
    }

    fn log(&self, number: usize) -> std::path::PathBuf {
        self.path().join(format!("daemon-{number}.log"))
    }

    /// What all of them have printed, one after another. A line stands as a whole or not at all.
    fn ledger(&self) -> Vec<Uuid> {
        let said = |number| std::fs::read_to_string(self.log(number)).expect("the log is there");
        let said: Vec<String> = (0..self.started.get()).map(said).collect();
        let lines = said.iter().flat_map(|text| text.lines());
        let events = lines.filter(|line| line.starts_with("{\"id\":"));
        events
            .map(|line| {
                let event: serde_json::Value = serde_json::from_str(line).expect("a whole line");
                event["id"]
                    .as_str()
                    .expect("an id")
                    .parse()
                    .expect("the event's id")
            })
            .collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_on_sqlite_that_is_killed_and_frozen_keeps_every_key_in_order() {
    let length = length(15);
    let _turn = Turn::take(Weight::Heavy).await;
    let folder = Folder::new();
    let hook = Receiver::start(Mood::Stumbles);
    folder.configure(&format!("{}{}", hook.destination(HOOK), shop::routes("log")));
    let books = books::Sqlite::create(&folder.path().join("outbox.db")).await;
    let load = Load::start(&books, 2);
    let mut crew = Crew::hire(&books, 1, || folder.start());
    crew.suffer(length).await;
    load.stop().await;
    hook.becomes(Mood::Answers);
    shop::done(&books, DRAIN).await;
    let faults = crew.dismiss().await;

    let reckoning = shop::reckon(&books, ("log", &folder.ledger()), &hook.ledger()).await;
    judge("SQLite", length, &faults, &reckoning);
}
