//! Counts rows with a status that the layout does not know.

use super::literal;
use super::typed_layout::TypedLayout;
use crate::stores::postgres::adopt::inspect::{quoted, quoted_table};
use crate::stores::postgres::adopt::layout::Status;

impl TypedLayout<'_> {
    /// Steps from one value to the next by an index on the column, so that rows with a known status cost nothing.
    pub(super) fn count_unknown(&self) -> Option<String> {
        let Status::Code {
            column,
            pending,
            processing,
            failed,
            delivered,
            dead,
        } = &self.layout.status
        else {
            return None;
        };
        let known: Vec<String> = [
            Some(pending),
            processing.as_ref(),
            failed.as_ref(),
            Some(delivered),
            dead.as_ref(),
        ]
        .into_iter()
        .flatten()
        .map(|code| literal(code))
        .collect();
        Some(format!(
            "with recursive value as (
  (select s.{column} as code from {table} s where s.{column} is not null order by 1 limit 1)
  union all
  select (select s.{column} from {table} s where s.{column} > v.code order by 1 limit 1)
  from value v where v.code is not null
)
select count(*) from (
  (select from value v join {table} s on s.{column} = v.code where v.code::text not in ({known}) limit $1)
  union all
  (select from {table} s where s.{column} is null limit $1)
  limit $1
) as unknown",
            column = quoted(column),
            table = quoted_table(&self.layout.table),
            known = known.join(", ")
        ))
    }
}
