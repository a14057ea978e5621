//! Random histories of producers, workers, importers and operators on one table. At the end, every row has ended and its
//! table shows it. No row is sent twice without a reason.

use std::collections::BTreeMap;
use std::time::Duration;

use pillarbox::Delivery;
use pillarbox_store::adopt::ImportRequest;
use pillarbox_store::store::{ClaimRequest, Due, Settlement, Share, SweepRequest, Take};
use pillarbox_store::{Operate, Scope, Store, Verdict};
use pillarbox_testkit::OPERATOR;
use pillarbox_testkit::store_suite::{Harness, check};
use proptest::prelude::{Just, Strategy, any};
use proptest::prop_oneof;
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::super::producer::request;
use super::agreement::{Shown, assert_agree_except, shown};
use super::beside::{self, MODKIT_CLAIM, REDIVER_CLAIM};
use super::harness::{Adopted, dead, importer, retry};
use super::seeds::{ARAP, FAMILY_HUB, MODKIT, REDIVER, Seed};

const CASES: u32 = 30;
const STEPS: usize = 60;
const LEASE: Duration = Duration::from_secs(60);

/// Rows and claims are named by numbers, modulo how many there are.
#[derive(Debug, Clone)]
enum Step {
    Produce,
    /// In a transaction that stays open.
    ProduceLate,
    /// The oldest open transaction ends.
    Commit,
    Import {
        second: bool,
        takes_over: bool,
    },
    Claim {
        second: bool,
    },
    Settle(usize, Verdict),
    /// An operator resets the row in its table.
    Reset(usize),
    Delete(usize),
    /// Another session locks a row: one in flight, if there is one.
    Lock(usize),
    Unlock,
    /// Both workers die: their rows are not settled, and their leases expire.
    Die,
    /// A worker settles although its lease has expired.
    Sleep,
    Sweep,
    Retry(usize),
    Skip(usize),
    /// An operator deletes the event. The row stays in its table.
    DeleteEvent(usize),
    /// The system's own worker claims rows and delivers them, if it runs.
    TheirWorker,
}

/// The statements of a system's own worker.
#[derive(Debug, Clone, Copy)]
struct TheirWorker {
    claim: &'static str,
    delivered: &'static str,
}

fn steps() -> impl Strategy<Value = Step> {
    let row = || 0usize..50;
    prop_oneof![
        6 => Just(Step::Produce),
        1 => Just(Step::ProduceLate),
        1 => Just(Step::Commit),
        6 => (any::<bool>(), any::<bool>()).prop_map(|(second, takes_over)| Step::Import { second, takes_over }),
        7 => any::<bool>().prop_map(|second| Step::Claim { second }),
        10 => (row(), verdicts()).prop_map(|(claim, verdict)| Step::Settle(claim, verdict)),
        3 => row().prop_map(Step::Reset),
        1 => row().prop_map(Step::Delete),
        2 => row().prop_map(Step::Lock),
        2 => Just(Step::Unlock),
        1 => Just(Step::Die),
        1 => Just(Step::Sleep),
        1 => Just(Step::Sweep),
        2 => row().prop_map(Step::Retry),
        1 => row().prop_map(Step::Skip),
        1 => row().prop_map(Step::DeleteEvent),
        3 => Just(Step::TheirWorker),
    ]
}

fn verdicts() -> impl Strategy<Value = Verdict> {
    let release = |reason: Option<&str>| Verdict::Release {
        after: Duration::ZERO,
        reason: reason.map(str::to_owned),
    };
    let suspect = Verdict::Suspect {
        after: LEASE,
        reason: "cut".to_owned(),
    };
    prop_oneof![
        4 => Just(Verdict::Delivered),
        3 => Just(retry(0)),
        1 => Just(retry(50)),
        1 => Just(release(None)),
        1 => Just(release(Some("the broker is away"))),
        2 => Just(dead()),
        1 => Just(suspect),
        1 => Just(Verdict::Delete),
    ]
}

/// What the test knows of a row.
#[derive(Debug, Default)]
struct Known {
    sent: u32,
    /// Resets, manual retries and late settles. Each may send the row once more.
    excuses: u32,
    deleted: bool,
    /// No route matched.
    discarded: bool,
    /// The system's own worker delivered it.
    by_theirs: bool,
}

struct History {
    adopted: Adopted,
    reset: &'static str,
    limit: Option<u32>,
    theirs: Option<TheirWorker>,
    rows: BTreeMap<Uuid, Known>,
    held: Vec<(Uuid, Delivery)>,
    open: Vec<sqlx::Transaction<'static, sqlx::Postgres>>,
    lock: Option<(Uuid, sqlx::Transaction<'static, sqlx::Postgres>)>,
    workers: [Uuid; 2],
}

impl History {
    async fn of(seed: Seed, reset: &'static str, limit: Option<u32>) -> Self {
        Self {
            adopted: beside::adopted(seed).await,
            reset,
            limit,
            theirs: None,
            rows: BTreeMap::new(),
            held: Vec::new(),
            open: Vec::new(),
            lock: None,
            workers: [Uuid::new_v4(), Uuid::new_v4()],
        }
    }

    /// A row that is neither deleted nor locked.
    fn free(&self, number: usize) -> Option<Uuid> {
        let locked = self.lock.as_ref().map(|(id, _)| *id);
        let free: Vec<Uuid> = self
            .rows
            .iter()
            .filter(|(id, known)| !known.deleted && Some(**id) != locked)
            .map(|(id, _)| *id)
            .collect();
        (!free.is_empty()).then(|| free[number % free.len()])
    }

    /// A row in flight that is not deleted.
    fn worked_on(&self, number: usize) -> Option<Uuid> {
        let there = |id: &Uuid| !self.rows[id].deleted;
        let held: Vec<Uuid> = self
            .held
            .iter()
            .map(|(_, delivery)| delivery.event.id)
            .filter(there)
            .collect();
        (!held.is_empty()).then(|| held[number % held.len()])
    }

    fn known(&mut self, id: Uuid) -> &mut Known {
        self.rows.get_mut(&id).expect("a row that was produced")
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Produce => {
                let id = self.adopted.produce().await;
                self.rows.insert(id, Known::default());
            }
            Step::ProduceLate => self.produce_late().await,
            Step::Commit => {
                if !self.open.is_empty() {
                    self.open.remove(0).commit().await.expect("commits");
                }
            }
            Step::Import { second, takes_over } => self.import(usize::from(second), takes_over).await,
            Step::Claim { second } => self.claim(usize::from(second)).await,
            Step::Settle(number, verdict) => self.settle(number, verdict).await,
            Step::Reset(number) => {
                if let Some(id) = self.free(number)
                    && self.is_committed(id).await
                {
                    self.adopted.change(id, self.reset).await;
                    self.known(id).excuses += 1;
                }
            }
            Step::Delete(number) => {
                if let Some(id) = self.free(number)
                    && self.is_committed(id).await
                {
                    let Seed { place, id: key, .. } = self.adopted.seed;
                    self.adopted
                        .run(&format!("delete from {place} where {key} = '{id}'"))
                        .await;
                    self.known(id).deleted = true;
                }
            }
            Step::Lock(number) => self.lock(number).await,
            Step::Unlock => self.unlock().await,
            Step::Die => {
                self.held.clear();
                self.adopted.outbox.age(time::Duration::seconds(200)).await;
            }
            Step::Sleep => self.adopted.outbox.age(time::Duration::seconds(200)).await,
            Step::Sweep => self.sweep().await,
            Step::Retry(number) => {
                if let Some(id) = self.free(number) {
                    let retried = self
                        .adopted
                        .outbox
                        .store
                        .retry(&OPERATOR, &[id])
                        .await
                        .expect("retries");
                    self.known(id).excuses += u32::from(!retried.is_empty());
                }
            }
            Step::Skip(number) => {
                if let Some(id) = self.free(number) {
                    self.adopted
                        .outbox
                        .store
                        .skip(&OPERATOR, &[id])
                        .await
                        .expect("skips");
                }
            }
            Step::DeleteEvent(number) => {
                if let Some(id) = self.free(number) {
                    self.adopted
                        .outbox
                        .store
                        .delete(&OPERATOR, &[id])
                        .await
                        .expect("deletes");
                }
            }
            Step::TheirWorker => self.work_as_theirs().await,
        }
    }

    async fn produce_late(&mut self) {
        // Each holds a connection of a small pool.
        if self.open.len() > 1 {
            return;
        }
        let id = Uuid::now_v7();
        let insert = self.adopted.seed.insert.replace("{id}", &id.to_string());
        let insert = insert.replace("{schema}", self.adopted.schema());
        let mut transaction = self.adopted.outbox.pool.begin().await.expect("begins");
        sqlx::raw_sql(AssertSqlSafe(insert))
            .execute(&mut *transaction)
            .await
            .expect("inserts");
        self.open.push(transaction);
        self.rows.insert(id, Known::default());
    }

    async fn is_committed(&self, id: Uuid) -> bool {
        !self.adopted.row(id).await.is_null()
    }

    async fn lock(&mut self, number: usize) {
        self.unlock().await;
        let Some(id) = self.worked_on(number).or_else(|| self.free(number)) else {
            return;
        };
        self.lock = Some((id, self.adopted.hold(id).await));
    }

    async fn unlock(&mut self) {
        if let Some((_, transaction)) = self.lock.take() {
            transaction.rollback().await.expect("rolls back");
        }
    }

    async fn import(&mut self, worker: usize, takes_over: bool) {
        if takes_over {
            self.adopted
                .outbox
                .execute("update pillarbox.importers set leased_until = now() - interval '1 second'")
                .await;
        }
        let request = ImportRequest {
            worker: self.workers[worker],
            lease: LEASE,
            batch: 3,
            max_in_progress: 12,
            detect_changes: true,
            prune: true,
        };
        let importer = importer(&self.adopted.outbox.store);
        importer.import(&request).await.expect("imports");
    }

    async fn claim(&mut self, worker: usize) {
        let store = &self.adopted.outbox.store;
        let look = store.find(&Scope::All, None, None, 100).await.expect("looks");
        let share = |due: Due| Share {
            backlog: due.backlog,
            limit: 4,
            floor: 0,
            fair: false,
            resume: false,
        };
        let free = Take::Free(look.due.into_iter().map(share).collect());
        for take in [free, Take::Suspects(4), Take::LoneSuspect] {
            let request = ClaimRequest {
                worker: self.workers[worker],
                take,
                lease: LEASE,
                ..request(4)
            };
            let claimed = store.claim(&request).await.expect("claims");
            let worker = self.workers[worker];
            self.held.extend(claimed.into_iter().map(|one| (worker, one)));
        }
    }

    async fn settle(&mut self, number: usize, verdict: Verdict) {
        if self.held.is_empty() {
            return;
        }
        let (worker, delivery) = self.held.remove(number % self.held.len());
        let settlement = Settlement {
            id: delivery.id,
            claim: delivery.claim,
            verdict: verdict.clone(),
            destination: Some("there".to_owned()),
            max_attempts: None,
            unordered: false,
            keep: true,
        };
        let store = &self.adopted.outbox.store;
        let lost = store.settle(worker, &[settlement]).await.expect("settles");
        let known = self.known(delivery.event.id);
        known.discarded |= verdict == Verdict::Delete && lost.is_empty();
        if verdict == Verdict::Delivered {
            known.sent += 1;
            known.excuses += u32::from(!lost.is_empty());
        }
    }

    async fn work_as_theirs(&mut self) {
        let Some(TheirWorker { claim, delivered }) = self.theirs else {
            return;
        };
        let claimed = beside::claim(&self.adopted.outbox.pool, self.adopted.schema(), claim).await;
        for id in claimed {
            self.adopted.change(id, delivered).await;
            let known = self.known(id);
            known.sent += 1;
            known.by_theirs = true;
        }
    }

    async fn sweep(&mut self) {
        let request = SweepRequest {
            worker: self.workers[0],
            scope: Scope::All,
            max_attempts: 25,
            grace: LEASE,
            excluded: Vec::new(),
        };
        self.adopted.outbox.store.sweep(&request).await.expect("sweeps");
    }

    /// Releases all locks, and lets the workers finish.
    async fn finish(&mut self) -> Result<(), String> {
        self.unlock().await;
        for transaction in self.open.drain(..) {
            transaction.commit().await.expect("commits");
        }
        self.held.clear();
        for _ in 0..60 {
            self.adopted.outbox.age(time::Duration::seconds(200)).await;
            self.import(0, true).await;
            self.claim(0).await;
            while !self.held.is_empty() {
                self.settle(0, Verdict::Delivered).await;
            }
            self.sweep().await;
            if self.is_over().await {
                // Once more: pending write-backs, and the last changes by others.
                self.import(0, true).await;
                if self.is_over().await {
                    return Ok(());
                }
            }
        }
        Err("the work never ends".to_owned())
    }

    async fn is_over(&self) -> bool {
        for (id, known) in &self.rows {
            let row = self.adopted.row(*id).await;
            if !known.deleted && shown(self.adopted.seed.name, &row, self.limit).0 == Shown::Pending {
                return false;
            }
        }
        true
    }

    async fn check(&self) -> Result<(), String> {
        for (id, known) in &self.rows {
            let row = self.adopted.row(*id).await;
            if known.sent > 1 + known.excuses {
                return Err(format!("{id} was sent too often: {known:?}, {row}"));
            }
            if known.deleted {
                continue;
            }
            let delivered = shown(self.adopted.seed.name, &row, self.limit).0 == Shown::Delivered;
            if delivered && known.sent == 0 && !known.discarded {
                return Err(format!("{id} was never sent, and its table says so: {row}"));
            }
        }
        // A row that was dead, was reset, and was then delivered by their worker stays dead here.
        let theirs = self
            .rows
            .iter()
            .filter(|(_, known)| known.by_theirs && known.excuses > 0);
        let theirs: Vec<Uuid> = theirs.map(|(id, _)| *id).collect();
        assert_agree_except(&self.adopted, self.limit, &theirs).await;
        Ok(())
    }
}

const START: Step = Step::Import {
    second: false,
    takes_over: false,
};

async fn live(mut history: History, steps: Vec<Step>) -> Result<(), String> {
    // Something to do, or half of what follows would be about nothing.
    let begin = [
        Step::Produce,
        Step::Produce,
        Step::Produce,
        START,
        Step::Claim { second: false },
    ];
    for step in begin.into_iter().chain(steps) {
        history.step(step).await;
    }
    history.finish().await?;
    history.check().await?;
    history.adopted.clean_up().await;
    Ok(())
}

fn run(seed: Seed, reset: &'static str, limit: Option<u32>, theirs: Option<TheirWorker>) {
    let steps = proptest::collection::vec(steps(), 1..STEPS);
    check(CASES, &steps, async |steps| {
        let mut history = History::of(seed, reset, limit).await;
        history.theirs = theirs;
        live(history, steps).await
    });
}

const RESET: &str = "status = 0, retry_count = 0, processed_at = null";

#[test]
fn every_row_of_a_table_with_codes_ends_as_its_table_shows() {
    run(FAMILY_HUB, RESET, None, None);
}

/// A regression: an event that was reset in flight and ended dead was found as not written back, in every round that prunes.
#[tokio::test]
async fn a_row_that_is_reset_before_it_ends_dead_starts_again() {
    let history = History::of(FAMILY_HUB, RESET, None).await;
    let steps = vec![
        Step::Settle(0, retry(0)),
        Step::Settle(0, Verdict::Delivered),
        Step::Settle(0, Verdict::Delivered),
        Step::Claim { second: false },
        Step::Reset(0),
        Step::Settle(0, dead()),
    ];
    Box::pin(live(history, steps)).await.unwrap();
}

#[test]
fn every_row_of_a_table_with_a_processed_time_ends_as_its_table_shows() {
    run(
        ARAP,
        "\"ProcessedOnUtc\" = null, \"RetryCount\" = 0",
        Some(3),
        None,
    );
}

#[test]
fn every_row_of_modkit_ends_once_beside_its_own_worker() {
    let theirs = TheirWorker {
        claim: MODKIT_CLAIM,
        delivered: "status = 'delivered', locked_by = null, locked_until = null",
    };
    let reset =
        "status = 'pending', attempts = 0, next_attempt_at = now(), locked_by = null, locked_until = null";
    run(MODKIT, reset, None, Some(theirs));
}

#[test]
fn every_row_of_rediver_ends_once_beside_its_own_worker() {
    let theirs = TheirWorker {
        claim: REDIVER_CLAIM,
        delivered: "status = 'completed', processed_at = now(), locked_at = null, locked_by = null",
    };
    let reset = "status = 'pending', retry_count = 0, scheduled_at = now(), locked_at = null, locked_by = '',
      processed_at = null";
    // One attempt and three retries, as its rows say.
    run(REDIVER, reset, Some(4), Some(theirs));
}
