//! Chooses the rows of a claim, in the order in which they are claimed.
//!
//! One or two statements per backlog. They read only rows that can be claimed, and the first row of each key.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use serde_json::json;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection};
use uuid::Uuid;

use super::expired::{Search, expired};
use super::{column_limit, decode, row_limit};
use crate::store::{Backlog, ClaimRequest, Share, Take};

/// How many keys of a backlog a claim reads; the next claim continues there. A key costs a few microseconds, however many
/// rows it has.
const STEPS: usize = 1_000;

/// How many rows are read to give each tenant its share.
const FAIR_WINDOW: usize = 5_000;

static CHOOSE_KEYS: LazyLock<String> = LazyLock::new(|| with_key_steps(include_str!("sql/choose_keys.sql")));

/// The statement with its steps from key to key.
pub(super) fn with_key_steps(statement: &str) -> String {
    statement.replace(
        "\n/*key_steps*/\n",
        &format!("\n{}", include_str!("sql/key_steps.sql")),
    )
}

/// A row that may be claimed.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) rowno: i64,
    pub(super) size: usize,
}

impl Candidate {
    pub(super) fn from_row(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            rowno: row.try_get("rowno")?,
            size: usize::try_from(row.try_get::<i64, _>("size")?).unwrap_or(usize::MAX),
        })
    }
}

pub(super) async fn choose(
    tx: &mut SqliteConnection,
    request: &ClaimRequest,
    turns: &Turns,
) -> Result<Vec<Candidate>, sqlx::Error> {
    let attempts = column_limit(request.max_attempts);
    let ours = |share: &&Share| share.limit > 0 && request.scope.contains(&share.backlog.namespace);
    let mut chosen = Vec::new();
    match &request.take {
        Take::Free(shares) => {
            for share in shares.iter().filter(ours) {
                chosen.extend(free(tx, share, request).await?);
            }
        }
        Take::Keyed(shares) => {
            let lanes = owned(tx, request.worker).await?;
            let ours = |share: &&Share| ours(share) && lanes.contains(&share.backlog);
            for share in shares.iter().filter(ours) {
                chosen.extend(keyed(tx, share, attempts, turns).await?);
            }
        }
        Take::Suspects(limit) => chosen = expired(tx, &Search::from(request), false, *limit).await?,
        Take::LoneSuspect => chosen = expired(tx, &Search::from(request), true, 1).await?,
    }
    Ok(chosen)
}

async fn free(
    tx: &mut SqliteConnection,
    share: &Share,
    request: &ClaimRequest,
) -> Result<Vec<Candidate>, sqlx::Error> {
    let sql = if share.fair {
        include_str!("sql/choose_fair.sql")
    } else {
        include_str!("sql/choose_free.sql")
    };
    let mut query = sqlx::query(sql)
        .bind(destination(&share.backlog))
        .bind(&share.backlog.namespace)
        .bind(row_limit(share.limit))
        .bind(share.floor)
        .bind(column_limit(request.max_attempts))
        .bind(row_limit(request.kept_for_waited(share.limit)));
    if share.fair {
        query = query.bind(row_limit(FAIR_WINDOW.max(share.limit)));
    }
    query
        .fetch_all(tx)
        .await?
        .iter()
        .map(Candidate::from_row)
        .collect()
}

/// The backlogs whose lane this worker owns.
async fn owned(tx: &mut SqliteConnection, worker: Uuid) -> Result<BTreeSet<Backlog>, sqlx::Error> {
    let rows = sqlx::query(include_str!("sql/owned_lanes.sql"))
        .bind(worker.to_string())
        .fetch_all(tx)
        .await?;
    rows.iter().map(decode::backlog).collect()
}

/// The first rows of about a quarter as many keys as there is room. So a hot key does not need one claim per row, and many
/// keys get their turn.
async fn keyed(
    tx: &mut SqliteConnection,
    share: &Share,
    attempts: i32,
    turns: &Turns,
) -> Result<Vec<Candidate>, sqlx::Error> {
    let wanted = (share.limit / 4).max(1);
    let after = turns.last(&share.backlog);
    let mut walk = keys(tx, share, attempts, &after, None, wanted).await?;
    if !walk.is_cut && !after.is_empty() && walk.free.len() < wanted {
        let rest = wanted - walk.free.len();
        let around = keys(tx, share, attempts, "", Some(&after), rest).await?;
        walk.free.extend(around.free);
        walk.is_cut = around.is_cut;
        walk.last = around.last;
    }
    turns.remember(&share.backlog, walk.last.filter(|_| walk.is_cut));
    if walk.free.is_empty() {
        return Ok(Vec::new());
    }
    let each = share.limit.div_ceil(walk.free.len());
    let mut chosen = runs(tx, share, attempts, &walk.free, each).await?;
    chosen.truncate(share.limit);
    Ok(chosen)
}

/// The result of stepping from key to key.
struct Walk {
    /// Keys whose first row can be claimed.
    free: Vec<String>,
    last: Option<String>,
    /// Were there more keys?
    is_cut: bool,
}

async fn keys(
    tx: &mut SqliteConnection,
    share: &Share,
    attempts: i32,
    after: &str,
    up_to: Option<&str>,
    wanted: usize,
) -> Result<Walk, sqlx::Error> {
    let rows = sqlx::query(CHOOSE_KEYS.as_str())
        .bind(destination(&share.backlog))
        .bind(&share.backlog.namespace)
        .bind(after)
        .bind(up_to)
        .bind(row_limit(STEPS))
        .bind(attempts)
        .bind(row_limit(wanted))
        .fetch_all(tx)
        .await?;
    let mut walk = Walk {
        free: Vec::new(),
        last: None,
        is_cut: false,
    };
    for row in &rows {
        let key = decode::text(row, "key")?.unwrap_or_default();
        walk.is_cut = row.try_get::<i64, _>("number")? == i64::from(row_limit(STEPS));
        if row.try_get("free")? {
            walk.free.push(key.clone());
        }
        walk.last = Some(key);
    }
    walk.is_cut |= walk.free.len() == wanted;
    Ok(walk)
}

/// The rows of each key up to the first that cannot be claimed.
async fn runs(
    tx: &mut SqliteConnection,
    share: &Share,
    attempts: i32,
    keys: &[String],
    each: usize,
) -> Result<Vec<Candidate>, sqlx::Error> {
    let rows = sqlx::query(include_str!("sql/choose_runs.sql"))
        .bind(destination(&share.backlog))
        .bind(&share.backlog.namespace)
        .bind(json!(keys).to_string())
        .bind(row_limit(each))
        .bind(attempts)
        .fetch_all(tx)
        .await?;
    let mut chosen = Vec::new();
    let mut ended: Option<i64> = None;
    for row in &rows {
        let place: i64 = row.try_get("place")?;
        if !row.try_get::<bool, _>("free")? {
            ended = Some(place);
        }
        if ended != Some(place) {
            chosen.push(Candidate::from_row(row)?);
        }
    }
    Ok(chosen)
}

/// The destination of a backlog as the indexes have it.
pub(super) fn destination(backlog: &Backlog) -> &str {
    backlog.destination.as_deref().unwrap_or_default()
}

/// The key of a backlog after which the next claim begins.
///
/// A hint of this process only. Without it, a claim begins with the first key. SQLite has one lane, so this replaces the
/// random first lane of the other stores.
#[derive(Debug, Clone, Default)]
pub(super) struct Turns(Arc<Mutex<BTreeMap<Backlog, String>>>);

impl Turns {
    fn last(&self, backlog: &Backlog) -> String {
        self.lock().get(backlog).cloned().unwrap_or_default()
    }

    fn remember(&self, backlog: &Backlog, key: Option<String>) {
        match key {
            Some(key) => self.lock().insert(backlog.clone(), key),
            None => self.lock().remove(backlog),
        };
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Backlog, String>> {
        // A panic elsewhere does not make the hint wrong.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
