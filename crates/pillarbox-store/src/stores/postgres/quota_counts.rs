//! Counts what is pending of holders with a quota, and writes down who has too much.
//!
//! A count walks the index entries of unfinished rows, of each holder at most one more than its quota. A call stops after
//! [`ROWS`] of them. Holders that were over their quota are counted again first, so that their producers go on soon. The pass over all
//! holders has as many rows of its own, so that the former keep no other from being counted.
//!
//! **If we die here** nothing is written, or a part. The live worker that started next counts from then on. Until then counts
//! are outdated, and after ten minutes they refuse nothing.

use std::sync::Arc;

use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::{Inner, Transaction, store_error};
use crate::quotas::{Counted, Holder};
use crate::store::StoreError;

/// After how many rows a call stops: of holders that were over their quota, and of all. Each costs 1 to 6 µs (measured on 2026-11-20: docs/adr/0019-quotas.md).
const ROWS: i64 = 20_000;
/// After how many quotas a statement stops.
const QUOTAS: usize = 1000;

/// Which quotas are there.
struct State {
    /// Does this worker count?
    is_mine: bool,
    roles: bool,
    tenants: bool,
    /// The quota of each tenant without its own.
    each: Option<i64>,
}

/// One holder.
#[derive(Default)]
struct Rows {
    kinds: Vec<String>,
    names: Vec<String>,
    /// The quotas; `None` if it is gone.
    most: Vec<Option<i64>>,
    pending: Vec<i64>,
}

pub(super) async fn count(
    inner: Arc<Inner>,
    worker: Uuid,
    after: Option<Holder>,
) -> Result<Counted, StoreError> {
    let state = state(&inner, worker).await?;
    if !state.is_mine || !(state.roles || state.tenants) {
        return Ok(Counted::default());
    }
    let mut transaction = inner.begin().await?;
    let mut rows = Rows::default();
    let again = sqlx::query(inner.sql.count_again.safe()).bind(ROWS);
    rows.fetch(&mut transaction, again).await?;
    let after = pass(&inner, &mut transaction, &state, after, &mut rows).await?;
    let mut counted = write(&inner, &mut transaction, rows).await?;
    transaction.commit().await.map_err(store_error)?;
    counted.after = after;
    Ok(counted)
}

/// Goes on with the pass over all holders: roles, then tenants. Returns the last one, if there may be more.
async fn pass(
    inner: &Inner,
    transaction: &mut Transaction,
    state: &State,
    after: Option<Holder>,
    rows: &mut Rows,
) -> Result<Option<Holder>, StoreError> {
    let mut left = ROWS;
    let (role, tenant) = match after {
        None => (Some(String::new()), String::new()),
        Some(Holder::Role(name)) => (Some(name), String::new()),
        Some(Holder::EachTenant) => (None, String::new()),
        Some(Holder::Tenant(id)) => (None, id.to_string()),
    };
    if let Some(role) = role.filter(|_| state.roles) {
        let roles = sqlx::query(inner.sql.count_quotas.safe()).bind("role").bind(role);
        let page = rows.fetch(transaction, roles.bind(left)).await?;
        left -= page.pending;
        if let Some(last) = page.last.filter(|_| left <= 0 || page.quotas >= QUOTAS) {
            return Ok(Some(last));
        }
    }
    if !state.tenants {
        return Ok(None);
    }
    let tenants = match state.each {
        None => sqlx::query(inner.sql.count_quotas.safe())
            .bind("tenant")
            .bind(tenant)
            .bind(left),
        Some(each) => sqlx::query(inner.sql.count_each_tenant.safe())
            .bind(tenant)
            .bind(left)
            .bind(each),
    };
    let page = rows.fetch(transaction, tenants).await?;
    let is_cut = page.pending >= left || page.quotas >= QUOTAS;
    Ok(page.last.filter(|_| is_cut))
}

/// What one statement has counted.
struct Page {
    quotas: usize,
    pending: i64,
    last: Option<Holder>,
}

impl Rows {
    async fn fetch(
        &mut self,
        transaction: &mut Transaction,
        query: super::claim::ClaimQuery,
    ) -> Result<Page, StoreError> {
        let fetched = query.persistent(false).fetch_all(&mut **transaction).await;
        let fetched = fetched.map_err(store_error)?;
        let before = self.kinds.len();
        for row in &fetched {
            self.push(row).map_err(store_error)?;
        }
        let last = self.kinds.last().zip(self.names.last());
        Ok(Page {
            quotas: fetched.len(),
            pending: self.pending[before..].iter().sum(),
            last: last.map(|(kind, name)| Holder::named(kind, name.clone())),
        })
    }

    fn push(&mut self, row: &PgRow) -> Result<(), sqlx::Error> {
        self.kinds.push(row.try_get("kind")?);
        self.names.push(row.try_get("name")?);
        self.most.push(row.try_get("most")?);
        self.pending.push(row.try_get("pending")?);
        Ok(())
    }
}

async fn state(inner: &Inner, worker: Uuid) -> Result<State, StoreError> {
    let mut connection = inner.connection().await?;
    let row = sqlx::raw_sql(inner.bounded(&inner.sql.quota_state(worker)))
        .fetch_one(&mut *connection)
        .await
        .map_err(store_error)?;
    let is = |column| row.try_get::<bool, _>(column).map_err(store_error);
    let state = State {
        is_mine: is("is_mine")?,
        roles: is("roles")?,
        tenants: is("tenants")?,
        each: row.try_get("each").map_err(store_error)?,
    };
    let is_ready = (!state.roles || is("has_role_index")?) && (!state.tenants || is("has_tenant_index")?);
    if state.is_mine && !is_ready {
        return Err(StoreError::Other(
            "quotas are not counted: an index of events is missing or invalid (run `pillarbox quota set` again)"
                .to_owned(),
        ));
    }
    Ok(state)
}

async fn write(inner: &Inner, transaction: &mut Transaction, rows: Rows) -> Result<Counted, StoreError> {
    let query = sqlx::query(inner.sql.write_counts.safe())
        .bind(rows.kinds)
        .bind(rows.names)
        .bind(rows.most)
        .bind(rows.pending)
        .persistent(false);
    let mut counted = Counted::default();
    for row in query.fetch_all(&mut **transaction).await.map_err(store_error)? {
        let (kind, name): (String, String) = (
            row.try_get("kind").map_err(store_error)?,
            row.try_get("name").map_err(store_error)?,
        );
        let most: i64 = row.try_get("max_pending").map_err(store_error)?;
        let one = (Holder::named(&kind, name), most.unsigned_abs());
        if row.try_get("is_over").map_err(store_error)? {
            counted.exceeded.push(one);
        } else {
            counted.within.push(one);
        }
    }
    Ok(counted)
}
