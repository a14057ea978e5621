//! Imports rows: each becomes a native row.

use super::failures::{FAILED_AGAIN, ROW_VERSION};
use super::literal;
use super::typed_layout::TypedLayout;
use crate::stores::postgres::adopt::inspect::{quoted, quoted_table};
use crate::stores::postgres::adopt::layout::{DeliveryOrder, Payload};

/// The longest ordering key that is made of another column, in characters.
const KEY: usize = 255;

/// The columns that an import writes, apart from the id.
const WRITTEN: &[&str] = &[
    "seq",
    "namespace",
    "topic",
    "event_type",
    "event_version",
    "aggregate_type",
    "aggregate_id",
    "tenant_id",
    "dedupe_key",
    "ordering_key",
    "unordered",
    "severity",
    "payload",
    "body",
    "content_type",
    "headers",
    "attempts",
    "max_attempts",
    "next_attempt_at",
    "created_at",
    "updated_at",
    "adopted_table",
];

impl TypedLayout<'_> {
    /// The ids of the rows to import, in the table's order.
    ///
    /// Reading them once for many batches makes the cost of a row independent of the backlog. A batch that searched for its
    /// rows would read the whole backlog where no index has the order, or where many rows have the same position.
    ///
    /// Each row looks up its mapping row (lateral). Otherwise the planner would read all mapping rows.
    pub(super) fn list(&self) -> String {
        let rows = self.rows_with_mapping();
        self.in_order("row_id", &rows, &self.is_listed("$3"), "$2", "")
    }

    /// The position of the first row to import, and true; or of the last live row if there is none, and false.
    pub(super) fn first_position(&self) -> String {
        let positions: Vec<String> = self.positions().map(|position| position + "::text").collect();
        let position = |is_importable: bool| format!("array[{}], {is_importable}", positions.join(", "));
        let rows = self.rows_with_mapping();
        let live = format!("{} s", quoted_table(&self.layout.table));
        format!(
            "({})\nunion all\n({})\nlimit 1",
            self.in_order(&position(true), &rows, &self.is_listed("$2"), "1", ""),
            self.in_order(&position(false), &live, &self.is_from("$2"), "1", " desc"),
        )
    }

    fn is_listed(&self, from: &str) -> String {
        let (is_importable, has_not_failed) = (self.is_importable(), self.has_not_failed());
        format!("{is_importable} and {has_not_failed} and {}", self.is_from(from))
    }

    /// Selects values of the first live rows that meet a condition, in the table's order or against it.
    fn in_order(&self, values: &str, rows: &str, condition: &str, limit: &str, direction: &str) -> String {
        let by = |columns: &mut dyn Iterator<Item = String>| -> String {
            let columns: Vec<String> = columns.map(|column| column + direction).collect();
            columns.join(", ")
        };
        let named: Vec<String> = (self.order().iter().zip(self.positions()))
            .map(|(column, position)| format!("{column} as {position}"))
            .collect();
        let branches = self.branches().into_iter().map(|branch| {
            format!(
                "(select {id_text} as row_id, {named} from {rows}
  where {branch} and {condition}
  order by {order}
  limit {limit})",
                id_text = self.id_text(),
                named = named.join(", "),
                order = by(&mut self.order().into_iter()),
            )
        });
        let branches: Vec<String> = branches.collect();
        format!(
            "select {values} from (
{}
) as live order by {} limit {limit}",
            branches.join("\nunion all\n"),
            by(&mut self.positions())
        )
    }

    /// The names of the columns of the order.
    fn positions(&self) -> impl Iterator<Item = String> {
        (0..self.order().len()).map(|n| format!("position_{n}"))
    }

    /// Is the row at this position or after it? The parameter is null for all rows. The planner knows its value.
    fn is_from(&self, position: &str) -> String {
        let columns = self.layout.order.iter().chain([&self.layout.id]).enumerate();
        let values: Vec<String> = columns
            .map(|(n, column)| format!("({position}::text[])[{}]::{}", n + 1, self.kind(column)))
            .collect();
        format!(
            "({position}::text[] is null or ({}) >= ({}))",
            self.order().join(", "),
            values.join(", ")
        )
    }

    /// Only an event of this table is rewritten: its rows name the table, under this name or an earlier one. Any other event
    /// with the same id is a conflict, native ones included. The row is recorded as a failure, and the event stays as it is. So
    /// is a row that speaks for a namespace or a tenant outside.
    ///
    /// `updated_at` is `created_at`, so that the table checks the sizes. A row that is too large is recorded as a failure.
    ///
    /// New rows are inserted without `on conflict`, which would cost a fifth of the import. The statement has looked for
    /// existing events before, and a table has one importer at a time.
    pub(super) fn import(&self) -> String {
        let set: Vec<String> = WRITTEN
            .iter()
            .map(|column| format!("{column} = n.{column}"))
            .collect();
        format!(
            "with own_name as materialized (
  select i.adopted_table as name from pillarbox.importers i where i.adopted_table = $1 or i.relation = {relation}
), live as materialized (
  {live}
), numbered as materialized (
  select l.*, nextval('pillarbox.outbox_seq') as seq, {dedupe_key} as dedupe_key,
    case when due_at > now() and due_at < '10000-01-01 00:00:00+00' then due_at else created_at end as next_attempt_at,
    {unordered} as unordered, created_at as updated_at,
    $1::text as adopted_table,
    (select true from pillarbox.outbox_events e where e.id = l.id) as exists_already,
    coalesce(l.mapped_by not in (select name from own_name), false)
      or (select true from pillarbox.outbox_events e
        where e.id = l.id and (e.adopted_table in (select name from own_name)) is not true) is not null
      or (select true from pillarbox.outbox_events e
        where e.parent_id = l.id and (e.adopted_table in (select name from own_name)) is not true limit 1) is not null
      as is_conflict,
    {outside} as outside
  from live l
), inserted as (
  insert into pillarbox.outbox_events (id, {columns})
  select id, {columns} from numbered where exists_already is null and not is_conflict and outside is null order by seq
  returning id
), restarted as (
  update pillarbox.outbox_events e set {set}, destination = null, status = 'pending',
    locked_by = null, locked_until = null, claim_id = null, last_error = null, delivered_at = null
  from numbered n
  where e.id = any(array(select id from numbered where exists_already and not is_conflict and outside is null)) and e.id = n.id
    and e.status || '' <> 'processing' and e.parent_id is null
  returning e.id
), imported as materialized (
  select id from inserted union all select id from restarted
), old_siblings as (
  delete from pillarbox.outbox_events o
  where o.parent_id = any(array(select id from imported)) and o.status || '' <> 'processing'
), taken as materialized (
  {take}
), mapped as (
  insert into pillarbox.adopted (adopted_table, row_id, event_id, tenant_id, fingerprint)
  select $1, row_id, id, tenant_id, fingerprint from taken where not is_mapped
), mapped_again as (
  update pillarbox.adopted a set adopted_table = $1, row_id = t.row_id, tenant_id = t.tenant_id, fingerprint = t.fingerprint,
    ended = false, write_back_pending = false, rejected = false
  from taken t
  where a.event_id = any(array(select id from taken where is_mapped)) and a.event_id = t.id
), recovered as (
  delete from pillarbox.import_failures f
  where (select exists (select from pillarbox.import_failures where adopted_table = $1))
    and f.adopted_table = $1 and f.event_id = any(array(select id from imported))
), conflicts as (
  insert into pillarbox.import_failures as f (adopted_table, event_id, row_id, versions, layout, is_conflict, error)
  select $1, id, row_id, array_agg(row_version order by row_version), {layout}, bool_or(outside is null),
    coalesce(max(outside), 'an event of the adopted table `'
      || case when mapped_by not in (select name from own_name) then mapped_by end
      || '` has this id', 'another event in the outbox has this id')
  from numbered where is_conflict or outside is not null group by id, row_id, mapped_by
  {again}
  returning 1
)
select (select count(*) from imported), (select count(*) from conflicts)",
            relation = self.relation(),
            outside = self.outside(),
            again = FAILED_AGAIN,
            layout = literal(&self.layout_version()),
            live = self.live_rows(),
            take = self.take_imported(),
            unordered = self.unordered(),
            dedupe_key = self.free_dedupe_key(),
            columns = WRITTEN.join(", "),
            set = set.join(", "),
        )
    }

    /// The dedupe key, unless another event has it. The adopted table may allow duplicates.
    fn free_dedupe_key(&self) -> &'static str {
        if self.layout.dedupe_key.is_none() {
            return "null::text";
        }
        "case when own_key is not null and not exists (
      select from pillarbox.outbox_events o where o.namespace = l.namespace and o.topic = l.topic
        and o.dedupe_key = l.own_key and o.dedupe_key is not null and o.id <> l.id
    ) then own_key end"
    }

    /// The rows of the table, each with its mapping row if it has one.
    fn rows_with_mapping(&self) -> String {
        format!(
            "{table} s left join lateral (
    select * from pillarbox.adopted a where a.event_id = {event_id} offset 0
  ) as a on true",
            table = quoted_table(&self.layout.table),
            event_id = self.event_id(),
        )
    }

    /// Is a live row due, and not in progress?
    fn is_importable(&self) -> String {
        format!("{} and (a.event_id is null or {})", self.due(), self.is_reset())
    }

    /// The listed rows that are still to be imported, in native columns. Locks them.
    fn live_rows(&self) -> String {
        let [json, body, content_type] = self.content();
        let layout = self.layout;
        let version = layout.event_version.as_ref().map_or_else(
            || "1".to_owned(),
            |column| format!("greatest(coalesce(s.{}::int, 1), 1)", quoted(column)),
        );
        let (_, table_name) = layout.names();
        format!(
            "select {id_text} as row_id, {event_id} as id, {fingerprint} as fingerprint,
    coalesce({namespace}, {name}) as namespace, coalesce({topic}, {table_name}) as topic,
    {event_type} as event_type, {version} as event_version, {aggregate_type} as aggregate_type,
    {aggregate_id} as aggregate_id, {tenant} as tenant_id, {dedupe_key} as own_key,
    {ordering_key} as ordering_key, {severity} as severity, {json} as payload, {body} as body,
    {content_type} as content_type, {headers} as headers, {attempts} as attempts, {max_attempts} as max_attempts,
    {due_at} as due_at, {created_at} as created_at, a.event_id is not null as is_mapped,
    a.adopted_table as mapped_by, {ROW_VERSION} as row_version
  from {rows}
  where {id} = any(array(select listed::{id_kind} from unnest((select $2::text[])) as listed))
    and {live} and {is_importable} and ($4 or {has_not_failed})
  order by {order}
  for update of s skip locked",
            id_text = self.id_text(),
            event_id = self.event_id(),
            fingerprint = self.fingerprint(),
            namespace = self.text(layout.namespace.as_ref()),
            name = literal(self.name),
            topic = self.text(layout.topic.as_ref()),
            table_name = literal(table_name),
            event_type = self.text(layout.event_type.as_ref()),
            aggregate_type = self.text(layout.aggregate_type.as_ref()),
            aggregate_id = self.text(layout.aggregate_id.as_ref()),
            tenant = self.tenant(),
            dedupe_key = self.text(layout.dedupe_key.as_ref()),
            ordering_key = self.ordering_key(),
            severity = self.text(layout.severity.as_ref()),
            headers = self.headers(),
            attempts = self.attempts(),
            max_attempts = self.max_attempts(),
            due_at = self.due_at(),
            created_at = self.created_at(),
            rows = self.rows_with_mapping(),
            id = self.id(),
            id_kind = self.kind(&layout.id),
            live = self.live(),
            is_importable = self.is_importable(),
            has_not_failed = self.has_not_failed(),
            order = self.order().join(", "),
        )
    }

    /// Is a row with a mapping row imported again? Yes if others reset it after it ended. A row that is mapped under an earlier
    /// name of this table waits until no worker imports under that name. A row that another table mapped is a conflict, which
    /// the import records.
    fn is_reset(&self) -> String {
        format!(
            "case when a.adopted_table = $1 then a.ended and not a.write_back_pending and a.fingerprint <> {fingerprint}
    else (select true from pillarbox.importers i where i.adopted_table = a.adopted_table and i.leased_until > now()
      and i.relation = {relation}) is null end",
            fingerprint = self.fingerprint(),
            relation = self.relation(),
        )
    }

    /// Is the row due?
    fn due(&self) -> String {
        match &self.layout.due_at {
            Some(column) => {
                let now = self.write_time(column, "now()");
                format!("coalesce(s.{} <= {now}, true)", quoted(column))
            }
            None => "true".to_owned(),
        }
    }

    fn text(&self, column: Option<&String>) -> String {
        column.map_or_else(
            || "null::text".to_owned(),
            |column| format!("nullif(s.{}::text, '')", quoted(column)),
        )
    }

    fn ordering_key(&self) -> String {
        let layout = self.layout;
        match (layout.delivers_by(), &layout.ordering_key) {
            (DeliveryOrder::Table, _) => format!("{}::text", literal(self.name)),
            // Ids that differ only after a key's longest length share a key, which keeps their order too.
            (DeliveryOrder::Key, None) => format!("left({}, {KEY})", self.text(layout.aggregate_id.as_ref())),
            (DeliveryOrder::Key | DeliveryOrder::None, column) => self.text(column.as_ref()),
        }
    }

    /// Has the row no place in the order of its key? A row that was tried before, or is due later, holds no other back.
    fn unordered(&self) -> &'static str {
        match self.layout.delivers_by() {
            DeliveryOrder::None => "ordering_key is not null",
            DeliveryOrder::Key | DeliveryOrder::Table => {
                "ordering_key is not null and (attempts > 0 or coalesce(due_at > now() and isfinite(due_at), false))"
            }
        }
    }

    fn tenant(&self) -> String {
        match &self.layout.tenant_id {
            None => "null::uuid".to_owned(),
            Some(column) if self.kind(column) == "uuid" => format!("s.{}", quoted(column)),
            Some(column) => {
                let text = format!("s.{}::text", quoted(column));
                format!(
                    "case when {text} ~* '^[0-9a-f]{{8}}-([0-9a-f]{{4}}-){{3}}[0-9a-f]{{12}}$' then {text}::uuid end"
                )
            }
        }
    }

    /// The columns `payload`, `body` and `content_type`.
    fn content(&self) -> [String; 3] {
        let media_type = |otherwise: &str| match &self.layout.content_type {
            Some(said) => format!("{}::text", literal(said)),
            None => otherwise.to_owned(),
        };
        match &self.layout.payload {
            Payload::Columns(columns) => {
                let members: Vec<String> = columns
                    .iter()
                    .map(|column| format!("{}, s.{}", literal(column), quoted(column)))
                    .collect();
                let object = format!("jsonb_build_object({})", members.join(", "));
                [object, "null::bytea".to_owned(), media_type("null::text")]
            }
            Payload::Column(column) => {
                let name = quoted(column);
                match self.kind(column) {
                    "jsonb" => [
                        format!("coalesce(s.{name}, 'null')"),
                        "null::bytea".to_owned(),
                        media_type("null::text"),
                    ],
                    "bytea" => [
                        "'null'::jsonb".to_owned(),
                        format!("coalesce(s.{name}, '')"),
                        media_type("null::text"),
                    ],
                    // Text is sent byte for byte.
                    _ => [
                        "'null'::jsonb".to_owned(),
                        format!("convert_to(coalesce(s.{name}::text, ''), 'UTF8')"),
                        media_type("'application/json'::text"),
                    ],
                }
            }
        }
    }

    fn headers(&self) -> String {
        match &self.layout.headers {
            Some(column) => {
                let json = format!("s.{}::text::jsonb", quoted(column));
                format!("case when jsonb_typeof({json}) = 'object' then {json} else '{{}}' end")
            }
            None => "'{}'::jsonb".to_owned(),
        }
    }

    fn attempts(&self) -> String {
        match &self.layout.attempts {
            Some(column) => format!("greatest(coalesce(s.{}, 0), 0)::int", quoted(column)),
            None => "0".to_owned(),
        }
    }

    fn max_attempts(&self) -> String {
        match (&self.layout.max_retries, self.layout.max_attempts) {
            (Some(column), _) => format!("(least(s.{}, {}) + 1)::int", quoted(column), i32::MAX - 1),
            (None, Some(most)) => most.to_string(),
            (None, None) => "null::int".to_owned(),
        }
    }

    fn created_at(&self) -> String {
        match &self.layout.created_at {
            // Some libraries write `-infinity` for a date that was never set.
            Some(column) => {
                let time = self.read_time(column);
                format!(
                    "case when {time} >= '0001-01-01 00:00:00+00' and isfinite({time}) then least({time}, now()) \
                     else now() end"
                )
            }
            None => "now()".to_owned(),
        }
    }

    /// When the row is due, if not at once.
    fn due_at(&self) -> String {
        let layout = self.layout;
        if let Some(column) = &layout.due_at {
            return self.read_time(column);
        }
        match (&layout.updated_at, &layout.attempts) {
            (Some(updated), Some(attempts)) if !layout.delays.0.is_empty() => {
                let attempts = quoted(attempts);
                let waits: Vec<String> = layout.delays.0.iter().map(u64::to_string).collect();
                format!(
                    "case when s.{attempts} > 0 then {} + make_interval(secs => \
                     (array[{}])[least(s.{attempts}, {})]) end",
                    self.read_time(updated),
                    waits.join(", "),
                    waits.len()
                )
            }
            _ => "null::timestamptz".to_owned(),
        }
    }
}
