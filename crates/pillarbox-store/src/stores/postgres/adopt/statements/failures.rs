//! Rows that cannot be imported: which version of a row failed, and whether it still does.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::literal;
use super::typed_layout::TypedLayout;
use crate::stores::postgres::adopt::inspect::quoted_table;

/// The version of a row: every update changes it. It costs no read of large columns.
pub(super) const ROW_VERSION: &str = "concat_ws(' ', s.tableoid, s.ctid, s.xmin)";
/// The versions of all rows with one id. The partitions of a table may have the same one.
const ROW_VERSIONS: &str = "array_agg(concat_ws(' ', s.tableoid, s.ctid, s.xmin)
    order by concat_ws(' ', s.tableoid, s.ctid, s.xmin))";

impl TypedLayout<'_> {
    /// Another layout, or another Pillarbox, may import what this one cannot.
    pub(super) fn layout_version(&self) -> String {
        let mut hasher = DefaultHasher::new();
        env!("CARGO_PKG_VERSION").hash(&mut hasher);
        format!("{:?}{:?}{:?}", self.layout, self.columns, self.speaks_for).hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    }

    /// Did the import of this version not fail before? While no row of the table has failed, no row is looked up.
    pub(super) fn has_not_failed(&self) -> String {
        format!(
            "case when (select exists (select from pillarbox.import_failures where adopted_table = $1))
    then (select {ROW_VERSION} = any(f.versions) and f.layout = {layout} from pillarbox.import_failures f
      where f.adopted_table = $1 and f.event_id = {event_id}) is not true
    else true end",
            event_id = self.event_id(),
            layout = literal(&self.layout_version()),
        )
    }

    /// The table itself.
    pub(super) fn relation(&self) -> String {
        format!("{}::regclass", literal(&quoted_table(&self.layout.table)))
    }

    /// Returns a row for each row with this id.
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
            "insert into pillarbox.import_failures as f (adopted_table, event_id, row_id, versions, layout, is_conflict, error)
select $1, {event_id}, {id_text}, {ROW_VERSIONS}, {layout}, false, $3
from {table} s where {id} = $2::text::{kind} group by {id}
{FAILED_AGAIN}",
            event_id = self.event_id(),
            id_text = self.id_text(),
            layout = literal(&self.layout_version()),
            table = quoted_table(&self.layout.table),
            id = self.id(),
            kind = self.kind(&self.layout.id),
        )
    }

    /// Steps through the failures of the table. A failure is over if the layout or its row was changed, if its row is gone, or
    /// if no event has the row's id any more. With another layout, the row's id may be invalid here.
    pub(super) fn prune_failures(&self) -> String {
        format!(
            "with checked as materialized (
  select f.event_id, f.row_id, f.versions, f.layout, f.is_conflict from pillarbox.import_failures f
  where f.adopted_table = $1 and f.event_id > $2 order by f.event_id limit $3
), over as materialized (
  select event_id from checked c
  where case when c.layout <> {layout} then true
    when (select {ROW_VERSIONS} from {table} s where {is_its_row}) is distinct from c.versions then true
    else c.is_conflict
      and (select true from pillarbox.outbox_events e where e.id = c.event_id) is null
      and (select true from pillarbox.outbox_events e where e.parent_id = c.event_id limit 1) is null
      and (select true from pillarbox.adopted a where a.event_id = c.event_id and a.adopted_table <> $1) is null
    end
), pruned as (
  delete from pillarbox.import_failures f
  where f.adopted_table = $1 and f.event_id = any(array(select event_id from over))
)
select (select count(*) from checked), (select event_id from checked order by event_id desc limit 1)",
            layout = literal(&self.layout_version()),
            table = quoted_table(&self.layout.table),
            is_its_row = self.is_its_row("c"),
        )
    }
}

/// What happens to the record of an earlier failure. If the same version failed again, the wait doubles, from a minute to an
/// hour: 2^6 minutes are more.
pub(super) const FAILED_AGAIN: &str = "on conflict (adopted_table, event_id) do update
  set row_id = excluded.row_id, versions = excluded.versions, layout = excluded.layout, is_conflict = excluded.is_conflict,
    error = excluded.error, failed_at = excluded.failed_at,
    attempts = case when (f.versions, f.layout) = (excluded.versions, excluded.layout) then f.attempts else 0 end + 1,
    next_attempt_at = now() + least(interval '1 hour', interval '1 minute' * 2 ^
      case when (f.versions, f.layout) = (excluded.versions, excluded.layout) then least(f.attempts, 6) else 0 end)";
