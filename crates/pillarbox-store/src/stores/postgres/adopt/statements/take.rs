//! Taking rows over: each as the native row that it becomes.

use super::literal;
use super::table::Table;
use crate::stores::postgres::adopt::inspect::{quoted, quoted_table};
use crate::stores::postgres::adopt::layout::Payload;

/// What a row is taken over with, apart from its id.
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
    "severity",
    "payload",
    "body",
    "content_type",
    "headers",
    "attempts",
    "max_attempts",
    "next_attempt_at",
    "created_at",
];

impl Table<'_> {
    /// A row that is new here is inserted without asking whether it is there (`on conflict` costs a fifth of the whole): what
    /// was here before is known from having looked, and one importer at a time works on a table.
    pub(super) fn import(&self, floor: &[String]) -> String {
        let branches = self.branches();
        let with: Vec<String> = (0..)
            .zip(&branches)
            .map(|(n, branch)| format!("branch_{n} as materialized (\n  {}\n)", self.taken(branch, floor)))
            .collect();
        let all: Vec<String> = (0..branches.len())
            .map(|n| format!("select * from branch_{n}"))
            .collect();
        let places: Vec<String> = (0..self.order().len()).map(|n| format!("place_{n}")).collect();
        let each = |form: fn(&String) -> String| places.iter().map(form).collect::<Vec<_>>().join(", ");
        let set: Vec<String> = WRITTEN
            .iter()
            .map(|column| format!("{column} = n.{column}"))
            .collect();
        format!(
            "with {with}, live as materialized (
  select * from ({all}) as l
  order by {places}
  limit $2
), numbered as materialized (
  select l.*, nextval('pillarbox.outbox_seq') as seq, {dedupe_key} as dedupe_key,
    case when due_at > now() and isfinite(due_at) then due_at else created_at end as next_attempt_at,
    (select true from pillarbox.outbox_events e where e.id = l.id) as was_here
  from live l
), born as (
  insert into pillarbox.outbox_events (id, {columns})
  select id, {columns} from numbered where was_here is null order by seq
  returning id
), again as (
  update pillarbox.outbox_events e set {set}, unordered = false, destination = null, status = 'pending',
    locked_by = null, locked_until = null, claim_id = null, last_error = null, updated_at = now(), delivered_at = null
  from numbered n
  where e.id = any(array(select id from numbered where was_here)) and e.id = n.id
    and e.status || '' <> 'processing' and e.parent_id is null
  returning e.id
), taken as materialized (
  select id from born union all select id from again
), gone as (
  delete from pillarbox.outbox_events o
  where o.parent_id = any(array(select id from taken)) and o.status || '' <> 'processing'
), noted as (
  insert into pillarbox.adopted (source, source_id, event_id, mark)
  select $1, source_id, id, mark from numbered where not was_noted and id in (select id from taken)
), noted_again as (
  update pillarbox.adopted a set source = $1, source_id = n.source_id, mark = n.mark, ended = false, behind = false
  from numbered n
  where a.event_id = any(array(select id from numbered where was_noted)) and a.event_id = n.id
    and n.id in (select id from taken)
)
select (select count(*) from taken), (select array[{texts}] from live order by {last} limit 1)",
            with = with.join(", "),
            all = all.join(" union all "),
            places = places.join(", "),
            dedupe_key = self.free_dedupe_key(),
            columns = WRITTEN.join(", "),
            set = set.join(", "),
            texts = each(|place| format!("{place}::text")),
            last = each(|place| format!("{place} desc")),
        )
    }

    /// The idempotency key, unless another event has it: the table had no rule of that kind.
    fn free_dedupe_key(&self) -> &'static str {
        if self.layout.dedupe_key.is_none() {
            return "null::text";
        }
        "case when own_key is not null and not exists (
      select from pillarbox.outbox_events o where o.namespace = l.namespace and o.topic = l.topic
        and o.dedupe_key = l.own_key and o.dedupe_key is not null and o.id <> l.id
    ) then own_key end"
    }

    /// Rows of one branch that are to be taken over, as what they become; locked. After the floor, if there is one.
    ///
    /// Each looks for its note by itself (lateral): the planner would read all that is noted for a batch.
    fn taken(&self, branch: &str, floor: &[String]) -> String {
        let [json, body, content_type] = self.content();
        let layout = self.layout;
        let version = layout.event_version.as_ref().map_or_else(
            || "1".to_owned(),
            |column| format!("greatest(coalesce(s.{}::int, 1), 1)", quoted(column)),
        );
        let (_, table_name) = layout.names();
        let order = self.order();
        let places: Vec<String> = (0..)
            .zip(&order)
            .map(|(n, by)| format!("{by} as place_{n}"))
            .collect();
        let order = order.join(", ");
        let after = if floor.is_empty() {
            String::new()
        } else {
            format!(" and ({order}) > ({})", floor.join(", "))
        };
        format!(
            "select {id_text} as source_id, {event_id} as id, {mark} as mark,
    coalesce({namespace}, {source}) as namespace, coalesce({topic}, {table_name}) as topic,
    {event_type} as event_type, {version} as event_version, {aggregate_type} as aggregate_type,
    {aggregate_id} as aggregate_id, {tenant} as tenant_id, {dedupe_key} as own_key,
    {ordering_key} as ordering_key, {severity} as severity, {json} as payload, {body} as body,
    {content_type} as content_type, {headers} as headers, {attempts} as attempts, {max_attempts} as max_attempts,
    {due_at} as due_at, {created_at} as created_at, a.event_id is not null as was_noted, {places}
  from {table} s left join lateral (
    select * from pillarbox.adopted a where a.event_id = {event_id} offset 0
  ) as a on true
  where {branch} and {due}{after} and (a.event_id is null or {is_anew})
  order by {order}
  limit $2
  for update of s skip locked",
            id_text = self.id_text(),
            event_id = self.event_id(),
            mark = self.mark(),
            is_anew = self.is_anew(),
            namespace = self.text(layout.namespace.as_ref()),
            source = literal(self.source),
            topic = self.text(layout.topic.as_ref()),
            table_name = literal(table_name),
            event_type = self.text(layout.event_type.as_ref()),
            aggregate_type = self.text(layout.aggregate_type.as_ref()),
            aggregate_id = self.text(layout.aggregate_id.as_ref()),
            tenant = self.tenant(),
            dedupe_key = self.text(layout.dedupe_key.as_ref()),
            ordering_key = self.text(layout.ordering_key.as_ref()),
            severity = self.text(layout.severity.as_ref()),
            headers = self.headers(),
            attempts = self.attempts(),
            max_attempts = self.max_attempts(),
            due_at = self.due_at(),
            created_at = self.created_at(),
            places = places.join(", "),
            table = quoted_table(&layout.table),
            due = self.due(),
        )
    }

    /// Is a row that is noted to be taken over nevertheless? If a person reset it after it was over; or if it is noted for
    /// a source that nobody imports from, such as this one under an earlier name.
    fn is_anew(&self) -> String {
        format!(
            "case when a.source = $1 then a.ended and not a.behind and a.mark <> {mark}
    else (select true from pillarbox.importers i where i.source = a.source and i.until > now()) is null end",
            mark = self.mark()
        )
    }

    /// The place of the last row that was taken, each part as the column has it.
    pub(super) fn floor(&self) -> Vec<String> {
        let columns = self.layout.order.iter().chain([&self.layout.id]);
        (1..)
            .zip(columns)
            .map(|(n, column)| format!("($3::text[])[{n}]::{}", self.kind(column)))
            .collect()
    }

    /// May it be sent now?
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

    /// JSON, bytes, media type.
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
                    // Text arrives as it was written, to the last blank.
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
            // Some libraries write a date that was never set as the beginning of time.
            Some(column) => {
                let time = self.read_time(column);
                format!("case when isfinite({time}) then least({time}, now()) else now() end")
            }
            None => "now()".to_owned(),
        }
    }

    /// When it is due, if that is not at once.
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
