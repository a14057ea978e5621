//! Rows that cannot be imported: which version of a row failed, and whether it still does.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::literal;
use super::typed_layout::TypedLayout;
use crate::stores::postgres::adopt::inspect::quoted_table;

impl TypedLayout<'_> {
    /// The version of a row: every update changes it, and so does another layout. It costs no read of large columns.
    pub(super) fn row_version(&self) -> String {
        let mut hasher = DefaultHasher::new();
        // Another Pillarbox may import what this one cannot.
        env!("CARGO_PKG_VERSION").hash(&mut hasher);
        format!("{:?}{:?}", self.layout, self.columns).hash(&mut hasher);
        format!(
            "concat_ws(' ', s.tableoid, s.ctid, s.xmin, '{:016x}')",
            hasher.finish()
        )
    }

    /// Did the import of this version not fail before? While no row of the table has failed, no row is looked up.
    pub(super) fn has_not_failed(&self) -> String {
        format!(
            "case when (select exists (select from pillarbox.import_failures where adopted_table = $1))
    then (select f.version from pillarbox.import_failures f where f.adopted_table = $1 and f.event_id = {event_id})
      is distinct from {version}
    else true end",
            event_id = self.event_id(),
            version = self.row_version(),
        )
    }

    /// The table itself.
    pub(super) fn relation(&self) -> String {
        format!("{}::regclass", literal(&quoted_table(&self.layout.table)))
    }

    pub(super) fn lock_row(&self) -> String {
        format!(
            "select 1 from {table} s where {id} = $1::text::{kind} for update skip locked",
            table = quoted_table(&self.layout.table),
            id = self.id(),
            kind = self.kind(&self.layout.id),
        )
    }

    /// The row is locked, so this is the version that failed.
    pub(super) fn fail(&self) -> String {
        format!(
            "insert into pillarbox.import_failures as f (adopted_table, event_id, row_id, version, is_conflict, error)
select $1, {event_id}, {id_text}, {version}, false, $3 from {table} s where {id} = $2::text::{kind} limit 1
{again}",
            event_id = self.event_id(),
            id_text = self.id_text(),
            version = self.row_version(),
            table = quoted_table(&self.layout.table),
            id = self.id(),
            kind = self.kind(&self.layout.id),
            again = FAILED_AGAIN,
        )
    }

    /// Steps through the failures of the table. A failure is over if its row was changed or is gone, or if no event has the
    /// row's id any more.
    pub(super) fn prune_failures(&self) -> String {
        format!(
            "with checked as materialized (
  select f.event_id, f.row_id, f.version, f.is_conflict from pillarbox.import_failures f
  where f.adopted_table = $1 and f.event_id > $2 order by f.event_id limit $3
), over as materialized (
  select event_id from checked c
  where (select {version} from {table} s where {is_its_row} limit 1) is distinct from c.version
    or (c.is_conflict
      and (select true from pillarbox.outbox_events e where e.id = c.event_id) is null
      and (select true from pillarbox.outbox_events e where e.parent_id = c.event_id limit 1) is null
      and (select true from pillarbox.adopted a where a.event_id = c.event_id and a.adopted_table <> $1) is null)
), pruned as (
  delete from pillarbox.import_failures f
  where f.adopted_table = $1 and f.event_id = any(array(select event_id from over))
)
select (select count(*) from checked), (select event_id from checked order by event_id desc limit 1)",
            version = self.row_version(),
            table = quoted_table(&self.layout.table),
            is_its_row = self.is_its_row("c"),
        )
    }
}

/// What happens to the record of an earlier failure.
pub(super) const FAILED_AGAIN: &str = "on conflict (adopted_table, event_id) do update
  set row_id = excluded.row_id, version = excluded.version, is_conflict = excluded.is_conflict, error = excluded.error,
    failed_at = excluded.failed_at";
