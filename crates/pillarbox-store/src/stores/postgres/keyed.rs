//! Claims rows with a key: fresh ones in the order of insertion, and those of keys that have a row which was tried before from
//! key to key.
//!
//! Fresh rows are read without their contents, in the order of insertion. [`chosen`] decides which of them may be taken, with
//! the answers to two questions about their keys. Then they are claimed. All of it is one transaction, which holds the lane ranges of
//! the rows from the first statement on. No other worker moves rows of these lanes meanwhile. Operators may. A row that has
//! changed since it was read is not claimed, nor are the later rows of its key.
//!
//! **If we die here** the claim is rolled back, or the lease expires.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::chosen::{self, Candidate, Chosen, KeyRows};
use super::claim::{ClaimQuery, Taken, count, fetch};
use super::keys::{Progress, Segment};
use super::sql::Statement;
use super::unreadable::ReadError;
use super::watermark::{Holder, Restarted, Seen};
use super::{Inner, Transaction, attempts, interval};
use crate::store::{ClaimRequest, Share, StoreError};
use pillarbox::Delivery;

/// How often a claim reads, at most.
const READS: usize = 16;
/// How many rows behind a blocked one a claim leaves to claims by key. Each is written, which takes 20 µs. A claim that takes
/// rows moves fewer, so that a long blocked key costs the others little.
const MOVES: usize = 4000;
const MOVES_BESIDE: usize = 200;
/// How often a claim steps from key to key in buckets whose first rows it cannot take.
const STEP: Duration = Duration::from_millis(100);
/// All lanes, as a multirange.
const ALL_LANES: &str = "{[0,4096)}";
/// How often the bottom of a backlog is looked for.
const LOOK: Duration = Duration::from_millis(500);

/// Claims rows with a key from these shares.
pub(super) async fn claim(
    inner: &Inner,
    transaction: &mut Transaction,
    request: &ClaimRequest,
    shares: &[Share],
) -> Result<Taken, ReadError> {
    let mut keyed = Keyed::new(inner, request, shares);
    keyed.claim(transaction).await?;
    let backlogs = keyed.shares.iter().map(|share| share.backlog.clone());
    Ok(Taken {
        came: backlogs.zip(keyed.progress).collect(),
        rows: keyed.claimed,
    })
}

/// The rows that a claim would take, and perhaps more: it claims them in the same way, but for the limit of bytes, and returns
/// their ids. It reads none of their contents. The transaction must be rolled back.
pub(super) async fn candidates(
    inner: &Inner,
    transaction: &mut Transaction,
    request: &ClaimRequest,
    shares: &[Share],
) -> Result<Vec<Uuid>, ReadError> {
    let mut keyed = Keyed::new(inner, request, shares);
    keyed.ids = Some(Vec::new());
    keyed.claim(transaction).await?;
    Ok(keyed.ids.unwrap_or_default())
}

/// A claim of rows with a key.
struct Keyed<'a> {
    inner: &'a Inner,
    request: &'a ClaimRequest,
    /// The shares within the scope.
    shares: Vec<&'a Share>,
    progress: Vec<Progress>,
    claimed: Vec<Delivery>,
    /// How many rows were claimed from each share, and how many bytes in all.
    taken: Vec<usize>,
    bytes: usize,
    /// The ids of the rows, where they are not read.
    ids: Option<Vec<Uuid>>,
}

/// What a statement has read of one bucket.
#[derive(Debug)]
struct Read {
    share: usize,
    bucket: u16,
    /// How many rows were claimed, and how many were left to claims by key.
    taken: usize,
    moved: usize,
    /// Were as many rows read as the claim wanted? There may be more.
    is_cut: bool,
}

/// The keys that a claim asks about, as columns.
#[derive(Debug, Default)]
struct Asked {
    destinations: Vec<String>,
    namespaces: Vec<String>,
    lanes: Vec<i16>,
    keys: Vec<String>,
    heads: Vec<i64>,
    bottoms: Vec<i64>,
}

impl<'a> Keyed<'a> {
    fn new(inner: &'a Inner, request: &'a ClaimRequest, shares: &'a [Share]) -> Self {
        let shares = shares.iter().filter(|share| share.limit > 0);
        let shares: Vec<&Share> = shares
            .filter(|share| request.scope.contains(&share.backlog.namespace))
            .collect();
        let progress = shares
            .iter()
            .map(|share| inner.keys.progress(request.worker, share));
        Self {
            inner,
            request,
            progress: progress.collect(),
            taken: vec![0; shares.len()],
            shares,
            claimed: Vec::new(),
            bytes: 0,
            ids: None,
        }
    }

    async fn claim(&mut self, transaction: &mut Transaction) -> Result<(), ReadError> {
        if self.shares.is_empty() {
            return Ok(());
        }
        self.look_for_bottoms(transaction).await?;
        if self.may_have_tried() {
            let shares = self.shares.iter();
            let half: Vec<usize> = shares
                .map(|share| self.request.kept_for_waited(share.limit))
                .collect();
            self.claim_tried(transaction, &half).await?;
        }
        self.claim_fresh(transaction).await?;
        if self.may_have_tried() {
            let left = self.left();
            self.claim_tried(transaction, &left).await?;
        }
        Ok(())
    }

    fn may_have_tried(&self) -> bool {
        self.progress.iter().any(|progress| progress.may_have_tried)
    }

    /// How many rows are left of each share.
    fn left(&self) -> Vec<usize> {
        let shares = self.shares.iter().zip(&self.taken);
        shares
            .map(|(share, taken)| share.limit.saturating_sub(*taken))
            .collect()
    }

    fn is_empty(&self) -> bool {
        self.taken.iter().all(|taken| *taken == 0)
    }

    /// How many rows this claim may leave to claims by key.
    fn moves(&self) -> usize {
        if self.is_empty() { MOVES } else { MOVES_BESIDE }
    }

    /// Has the claim as many bytes as it may?
    fn is_full(&self) -> bool {
        !self.is_empty() && self.bytes >= self.request.max_bytes
    }

    /// Raises the bottoms of the backlogs for which it is time.
    async fn look_for_bottoms(&mut self, transaction: &mut Transaction) -> Result<(), ReadError> {
        let is_due = |progress: &Progress| progress.looked.is_none_or(|at| at.elapsed() >= LOOK);
        if !self.progress.iter().any(is_due) {
            return Ok(());
        }
        if !self.inner.keys.bottoms.may_look() {
            return Ok(());
        }
        let began = Instant::now();
        let Ok(certain) = self.look_for_holders(transaction).await? else {
            self.inner.keys.bottoms.looked(began.elapsed());
            self.inner.keys.forget();
            let progress = self.shares.iter();
            self.progress = progress
                .map(|share| self.inner.keys.progress(self.request.worker, share))
                .collect();
            return Ok(());
        };
        let bottoms: Vec<i64> = self.progress.iter().map(|progress| progress.bottom).collect();
        let query = sqlx::query(self.inner.sql.bottoms.safe())
            .bind(self.destinations())
            .bind(self.namespaces())
            .bind(bottoms)
            .bind(certain);
        let rows = query.persistent(false).fetch_all(&mut **transaction).await?;
        for row in rows {
            if let Some(progress) = number(&row)?.and_then(|number| self.progress.get_mut(number)) {
                progress.bottom = row.try_get("bottom")?;
                progress.looked = Some(Instant::now());
            }
        }
        self.inner.keys.bottoms.looked(began.elapsed());
        Ok(())
    }

    /// Up to which number every row is visible to the next statement.
    async fn look_for_holders(
        &self,
        transaction: &mut Transaction,
    ) -> Result<Result<i64, Restarted>, ReadError> {
        let began = self.inner.watermark().begin();
        let rows = sqlx::raw_sql(self.inner.sql.holders.safe())
            .fetch_all(&mut **transaction)
            .await?;
        let mut seen = Seen {
            server: String::new(),
            last: 0,
            holders: HashSet::new(),
        };
        for row in rows {
            match row.try_get("holder")? {
                Some(name) => {
                    let is_prepared = row.try_get("is_prepared")?;
                    seen.holders.insert(Holder { name, is_prepared });
                }
                None => (seen.last, seen.server) = (row.try_get("last")?, row.try_get("server")?),
            }
        }
        Ok(self.inner.watermark().look(began, seen))
    }

    /// Claims from the keys that have a row which was tried before, of each share up to the limit.
    async fn claim_tried(
        &mut self,
        transaction: &mut Transaction,
        limits: &[usize],
    ) -> Result<(), ReadError> {
        if self.is_full() || limits.iter().all(|limit| *limit == 0) {
            return Ok(());
        }
        let query = self.by_key(&self.inner.sql.claim_keyed, limits, ALL_LANES);
        let is_empty = self.fetch(transaction, query).await? == 0;
        for (progress, limit) in self.progress.iter_mut().zip(limits) {
            progress.may_have_tried &= !is_empty || *limit == 0;
        }
        Ok(())
    }

    /// Claims fresh rows. It reads on while buckets have more and it could take few of the rows: at first from the next buckets,
    /// and then more of those that have rows.
    async fn claim_fresh(&mut self, transaction: &mut Transaction) -> Result<(), ReadError> {
        let mut parts = None;
        let (mut known, mut clogged) = (HashSet::new(), HashSet::new());
        let mut moved = 0;
        for _ in 0..READS {
            let limits = self.left();
            let wanted: usize = limits.iter().sum();
            if self.is_full() || wanted == 0 || moved >= self.moves() {
                break;
            }
            let read = self.claim_part(transaction, &limits, parts, moved).await?;
            let (mut taken, mut has_more, mut has_news) = (0, false, parts.is_none());
            for one in &read {
                let bucket = (one.share, one.bucket);
                taken += one.taken;
                moved += one.moved;
                has_more |= one.is_cut || one.moved > 0;
                has_news |= known.insert(bucket) || one.taken + one.moved > 0;
                if one.is_cut && one.taken == 0 {
                    clogged.insert(bucket);
                } else {
                    clogged.remove(&bucket);
                }
            }
            // Before other buckets use up what these have left.
            self.claim_clogged(transaction, &clogged).await?;
            if !has_more || !has_news || taken * 4 > wanted * 3 {
                break;
            }
            parts = Some(read.len().max(1));
        }
        Ok(())
    }

    /// Steps from key to key in buckets that begin with more rows than a claim reads, none of which it could take: their keys are in
    /// flight or blocked. Other keys are behind them.
    async fn claim_clogged(
        &mut self,
        transaction: &mut Transaction,
        clogged: &HashSet<(usize, u16)>,
    ) -> Result<(), ReadError> {
        let mut limits = self.left();
        let mut lanes = Vec::with_capacity(clogged.len());
        for (number, (limit, progress)) in limits.iter_mut().zip(&mut self.progress).enumerate() {
            let mut buckets = clogged.iter().filter(|(share, _)| *share == number).peekable();
            if *limit > 0 && buckets.peek().is_some() && progress.may_step(STEP) {
                lanes.extend(buckets.map(|(_, bucket)| Segment::lanes(*bucket)));
            } else {
                *limit = 0;
            }
        }
        if self.is_full() || limits.iter().all(|limit| *limit == 0) {
            return Ok(());
        }
        let lanes = format!("{{{}}}", lanes.join(","));
        let query = self.by_key(&self.inner.sql.claim_any_key(), &limits, &lanes);
        self.fetch(transaction, query).await?;
        Ok(())
    }

    /// Claims fresh rows, of each bucket at most such a part of its share. Without a number of parts, that of its backlog.
    async fn claim_part(
        &mut self,
        transaction: &mut Transaction,
        limits: &[usize],
        parts: Option<usize>,
        moved: usize,
    ) -> Result<Vec<Read>, ReadError> {
        let segments = self.segments();
        let most = segments.iter().map(|segment| {
            let parts = parts.unwrap_or(self.progress[segment.share].parts());
            limits[segment.share].div_ceil(parts)
        });
        let most: Vec<usize> = most.collect();
        let (rows, has_barriers) = self.read(transaction, &segments, limits, &most).await?;
        for row in &rows {
            self.progress[row.share].found(row.seq);
        }
        let mut keys = chosen::keys(&rows);
        self.ask(transaction, &rows, &mut keys, has_barriers).await?;
        let mut chosen = chosen::choose(&rows, &keys, self.bytes_left());
        self.take(transaction, &rows, &mut chosen).await?;
        chosen.moved.truncate(self.moves().saturating_sub(moved));
        if !chosen.moved.is_empty() {
            let moved = sqlx::query(self.inner.sql.claim_by_key.safe())
                .bind(versions(&rows, &chosen.moved))
                .bind(ids(&rows, &chosen.moved));
            moved.persistent(false).execute(&mut **transaction).await?;
            for progress in &mut self.progress {
                progress.may_have_tried = true;
            }
        }
        if parts.is_none() {
            for (progress, (rows, keys)) in self.progress.iter_mut().zip(chosen.sizes(&rows, limits.len())) {
                progress.took(rows, keys);
            }
        }
        let of_place = |place: usize, places: &[usize]| {
            let of_place = places.iter().filter(|one| rows[**one].place == place);
            of_place.count()
        };
        let mut read = Vec::new();
        for (place, floor) in chosen::floors(&rows, &chosen) {
            let Segment { share, bucket, .. } = segments[place];
            self.progress[share].read(bucket, floor);
            read.push(Read {
                share,
                bucket,
                taken: of_place(place, &chosen.taken),
                moved: of_place(place, &chosen.moved),
                is_cut: rows.iter().filter(|row| row.place == place).count() >= most[place],
            });
        }
        Ok(read)
    }

    /// Reads rows of these segments, and whether keys may have rows that were tried or have no destination.
    async fn read(
        &self,
        transaction: &mut Transaction,
        segments: &[Segment],
        limits: &[usize],
        most: &[usize],
    ) -> Result<(Vec<Candidate>, bool), sqlx::Error> {
        let turns: Vec<i64> = segments.iter().map(|segment| count(segment.share + 1)).collect();
        let buckets: Vec<i32> = segments.iter().map(|segment| i32::from(segment.bucket)).collect();
        let floors: Vec<i64> = segments.iter().map(|segment| segment.floor).collect();
        let may_look = self.inner.keys.barriers.may_look();
        let query = sqlx::query(self.inner.sql.read_keyed.safe())
            .bind(self.request.worker)
            .bind(self.request.claim)
            .bind(attempts(self.request.max_attempts))
            .bind(self.destinations())
            .bind(self.namespaces())
            .bind(counts(limits))
            .bind(turns)
            .bind(buckets)
            .bind(floors)
            .bind(counts(most))
            .bind(!may_look);
        let began = Instant::now();
        let rows = query.persistent(false).fetch_all(&mut **transaction).await?;
        if may_look {
            self.inner.keys.barriers.looked(began.elapsed());
        }
        let mut has_barriers = false;
        let mut candidates = Vec::with_capacity(rows.len());
        for row in &rows {
            has_barriers |= row.try_get::<bool, _>(10)?;
            candidates.push(candidate(row)?);
        }
        Ok((candidates, has_barriers))
    }

    /// Asks which keys have earlier rows, and which have rows that were tried or have no destination.
    async fn ask(
        &self,
        transaction: &mut Transaction,
        rows: &[Candidate],
        keys: &mut [KeyRows],
        has_barriers: bool,
    ) -> Result<(), ReadError> {
        if keys.is_empty() {
            return Ok(());
        }
        let mut asked = Asked::default();
        for key in keys.iter() {
            let row = key.first(rows);
            let backlog = &self.shares[row.share].backlog;
            asked
                .destinations
                .push(backlog.destination.clone().unwrap_or_default());
            asked.namespaces.push(backlog.namespace.clone());
            asked.lanes.push(row.lane);
            asked.keys.push(row.key.clone());
            asked.heads.push(key.head);
            asked.bottoms.push(self.progress[row.share].bottom);
        }
        if has_barriers {
            let query = sqlx::query(self.inner.sql.barriers_keyed.safe())
                .bind(&asked.destinations)
                .bind(&asked.namespaces)
                .bind(&asked.lanes)
                .bind(&asked.keys);
            for row in query.persistent(false).fetch_all(&mut **transaction).await? {
                if let Some(key) = number(&row)?.and_then(|number| keys.get_mut(number)) {
                    key.limit(row.try_get("tried")?, row.try_get("unrouted")?);
                }
            }
        }
        let query = sqlx::query(self.inner.sql.earlier_keyed.safe())
            .bind(asked.destinations)
            .bind(asked.namespaces)
            .bind(asked.lanes)
            .bind(asked.keys)
            .bind(asked.heads)
            .bind(asked.bottoms)
            .bind(self.request.claim);
        for row in query.persistent(false).fetch_all(&mut **transaction).await? {
            if let Some(key) = number(&row)?.and_then(|number| keys.get_mut(number)) {
                key.block();
            }
        }
        Ok(())
    }

    /// Claims the chosen rows. Those that others have locked or changed are left, with the later rows of their keys.
    async fn take(
        &mut self,
        transaction: &mut Transaction,
        rows: &[Candidate],
        chosen: &mut Chosen,
    ) -> Result<(), ReadError> {
        if chosen.taken.is_empty() || self.take_all(transaction, rows, &chosen.taken).await? {
            return Ok(());
        }
        let query = sqlx::query_scalar(self.inner.sql.lock_read.safe())
            .bind(versions(rows, &chosen.taken))
            .bind(ids(rows, &chosen.taken));
        let locked: Vec<String> = query.persistent(false).fetch_all(&mut **transaction).await?;
        let locked: HashSet<String> = locked.into_iter().collect();
        chosen.taken = chosen::without(rows, &chosen.taken, |row| locked.contains(&row.version));
        if !chosen.taken.is_empty() && !self.take_all(transaction, rows, &chosen.taken).await? {
            let error = "rows have changed although this claim has locked them".to_owned();
            return Err(ReadError::Store(StoreError::Other(error)));
        }
        Ok(())
    }

    /// Claims all of these rows, or none.
    async fn take_all(
        &mut self,
        transaction: &mut Transaction,
        rows: &[Candidate],
        taken: &[usize],
    ) -> Result<bool, ReadError> {
        let query = sqlx::query(self.statement(&self.inner.sql.claim_read).safe())
            .bind(self.request.worker)
            .bind(self.request.claim)
            .bind(interval(self.request.lease))
            .bind(versions(rows, taken))
            .bind(ids(rows, taken));
        Ok(self.fetch(transaction, query).await? > 0)
    }

    /// Adds the rows of a claim. Returns how many there are.
    async fn fetch(&mut self, transaction: &mut Transaction, query: ClaimQuery) -> Result<usize, ReadError> {
        if self.ids.is_some() {
            let rows = query.persistent(false).fetch_all(&mut **transaction).await?;
            for row in &rows {
                self.count(row.try_get("namespace")?, row.try_get("destination")?);
                self.ids.get_or_insert_default().push(row.try_get("id")?);
            }
            return Ok(rows.len());
        }
        let rows = fetch(transaction, query, self.request, false).await?;
        let count = rows.len();
        for row in &rows {
            self.count(&row.event.namespace, row.event.destination.as_deref());
            self.bytes += row.event.payload.len();
        }
        self.claimed.extend(rows);
        Ok(count)
    }

    /// Counts a row of this backlog.
    fn count(&mut self, namespace: &str, destination: Option<&str>) {
        let mut shares = self.shares.iter().map(|share| &share.backlog);
        let number =
            shares.position(|one| one.namespace == namespace && one.destination.as_deref() == destination);
        if let Some(taken) = number.and_then(|number| self.taken.get_mut(number)) {
            *taken += 1;
        }
    }

    /// A statement that claims, or one that only returns the ids.
    fn statement(&self, statement: &Statement) -> Statement {
        match self.ids {
            Some(_) => statement.returning_ids(),
            None => statement.clone(),
        }
    }

    /// The segments of all shares, share by share.
    fn segments(&self) -> Vec<Segment> {
        let progress = self.progress.iter().enumerate();
        progress
            .flat_map(|(share, progress)| progress.segments(share))
            .collect()
    }

    /// The statement that steps from key to key, in these lanes.
    fn by_key(&self, statement: &Statement, limits: &[usize], lanes: &str) -> ClaimQuery {
        sqlx::query(self.statement(statement).safe())
            .bind(self.request.worker)
            .bind(self.request.claim)
            .bind(interval(self.request.lease))
            .bind(self.destinations())
            .bind(self.namespaces())
            .bind(counts(limits))
            .bind(i32::from(self.request.first_lane))
            .bind(attempts(self.request.max_attempts))
            .bind(self.bytes_left())
            .bind(lanes.to_owned())
    }

    fn bytes_left(&self) -> i64 {
        count(self.request.max_bytes.saturating_sub(self.bytes).max(1))
    }

    /// '' means no destination. No destination has this name.
    fn destinations(&self) -> Vec<String> {
        let destinations = self.shares.iter().map(|share| share.backlog.destination.clone());
        destinations.map(Option::unwrap_or_default).collect()
    }

    fn namespaces(&self) -> Vec<String> {
        let namespaces = self.shares.iter().map(|share| share.backlog.namespace.clone());
        namespaces.collect()
    }
}

/// A row of `read_keyed.sql`.
fn candidate(row: &PgRow) -> Result<Candidate, sqlx::Error> {
    let place = |number: i64| usize::try_from(number - 1).unwrap_or(usize::MAX);
    Ok(Candidate {
        share: place(row.try_get(0)?),
        place: place(row.try_get(1)?),
        version: row.try_get(2)?,
        id: row.try_get(3)?,
        seq: row.try_get(4)?,
        lane: row.try_get(5)?,
        key: row.try_get(6)?,
        size: row.try_get(7)?,
        ready: row.try_get(8)?,
        is_ours: row.try_get(9)?,
    })
}

fn versions(rows: &[Candidate], places: &[usize]) -> Vec<String> {
    places.iter().map(|place| rows[*place].version.clone()).collect()
}

fn ids(rows: &[Candidate], places: &[usize]) -> Vec<Uuid> {
    places.iter().map(|place| rows[*place].id).collect()
}

fn counts(limits: &[usize]) -> Vec<i64> {
    limits.iter().map(|limit| count(*limit)).collect()
}

/// The number of the share or key that a row is about, from 0.
fn number(row: &PgRow) -> Result<Option<usize>, sqlx::Error> {
    Ok(usize::try_from(row.try_get::<i64, _>("place")? - 1).ok())
}
