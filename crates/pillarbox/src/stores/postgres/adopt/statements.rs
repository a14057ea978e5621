//! The statements that work on one adopted table, made of its layout and of the types of its columns.
//!
//! `source || ''` keeps the planner to the index on `event_id` where events are named: by the primary key it would read all
//! that is noted of the table. Seen in a plan of 2026-11-15 with 9,000 rows noted: 22 of 100 ms, and it grows with them.
//!
//! Identifiers stand between quotes, values are literals that were escaped; nothing of a row is ever part of a
//! statement.

use std::sync::Mutex;
use std::time::Duration;

use super::Source;
use super::inspect::{Column, fits, quoted, quoted_table};
use super::layout::{Counts, Layout, LayoutError, Payload, Status};
use crate::schema::in_schema;
use crate::store::Importing;

/// A layout that fits its table, ready to work.
#[derive(Debug)]
pub(crate) struct Adoption {
    /// What rows know it by.
    pub(crate) source: String,
    /// Takes rows over. $1 source   $2 how many
    pub(super) import: String,
    /// The same after the place of the last one. $3 the place
    pub(super) import_after: String,
    /// The place of the last row that was taken, while there are more: what is before it is on its way, and need not be
    /// looked through for every batch. What was committed late is found when the table is looked at from its beginning.
    pub(super) floor: Mutex<Option<Vec<String>>>,
    /// Finds rows that a person changed, and rows that are gone. $1 source
    pub(super) heed: String,
    /// Locks the rows of these events. $1 source   $2 events
    pub(super) lock: String,
    /// Writes what became of these events. $1 source   $2 events
    pub(super) tell: String,
    /// Of these events, those whose rows are gone need not be told. $1 source   $2 events
    pub(super) forgo: String,
    /// Counts rows whose status is none of the layout's. $1 how many at the most
    pub(super) strangers: Option<String>,
    /// Deletes delivered rows that are old enough. $1 source   $2 how many at the most
    pub(super) prune: Option<String>,
    poll: Duration,
    batch: usize,
    own_limits: bool,
}

impl Adoption {
    pub(super) fn new(from: &Source, columns: &[Column], schema: &str) -> Result<Self, LayoutError> {
        let layout = &from.layout;
        layout.check()?;
        fits(layout, columns)?;
        let table = Table {
            source: &from.name,
            layout,
            columns,
        };
        table.check_types()?;
        let ours = |text: String| in_schema(&text, schema);
        Ok(Self {
            source: from.name.clone(),
            import: ours(table.import(&[])),
            import_after: ours(table.import(&table.floor())),
            floor: Mutex::default(),
            heed: ours(table.heed()),
            lock: ours(table.lock()),
            tell: ours(table.tell()),
            forgo: ours(table.forgo()),
            strangers: table.strangers(),
            prune: from.prune.map(|age| table.prune(age)).transpose()?.map(ours),
            poll: from.poll,
            batch: from.batch,
            own_limits: layout.max_retries.is_some(),
        })
    }

    pub(in crate::stores::postgres) fn importing(&self) -> Importing {
        Importing {
            source: self.source.clone(),
            poll: self.poll,
            batch: self.batch,
            own_limits: self.own_limits,
        }
    }
}

struct Table<'a> {
    source: &'a str,
    layout: &'a Layout,
    columns: &'a [Column],
}

/// A text as a literal that holds whatever `standard_conforming_strings` says.
fn literal(text: &str) -> String {
    format!(
        "E'{}'",
        text.replace('\0', "").replace('\\', "\\\\").replace('\'', "''")
    )
}

impl Table<'_> {
    fn kind(&self, column: &str) -> &str {
        let found = self.columns.iter().find(|other| other.name == column);
        found.map_or("text", |column| column.kind.as_str())
    }

    fn check_types(&self) -> Result<(), LayoutError> {
        let layout = self.layout;
        let times = [
            ("created_at", &layout.created_at),
            ("updated_at", &layout.updated_at),
            ("processed_at", &layout.processed_at),
            ("due_at", &layout.due_at),
            ("locked_until", &layout.locked_until),
            ("locked_at", &layout.locked_at),
        ];
        let numbers = [
            ("attempts", &layout.attempts),
            ("max_retries", &layout.max_retries),
        ];
        let wrong = |key: &str, column: &str, wanted| LayoutError::Type {
            key: key.to_owned(),
            column: column.to_owned(),
            found: self.kind(column).to_owned(),
            wanted,
        };
        for (key, column) in times {
            let Some(column) = column.as_deref() else { continue };
            if !self.kind(column).starts_with("timestamp") {
                return Err(wrong(
                    key,
                    column,
                    "a timestamp is needed, with or without time zone",
                ));
            }
        }
        for (key, column) in numbers {
            let Some(column) = column.as_deref() else { continue };
            if !matches!(self.kind(column), "smallint" | "integer" | "bigint") {
                return Err(wrong(key, column, "a whole number is needed"));
            }
        }
        Ok(())
    }

    fn has_zone(&self, column: &str) -> bool {
        !self.kind(column).contains("without time zone")
    }

    /// A time of the table as one that has a zone.
    fn read_time(&self, column: &str) -> String {
        let name = quoted(column);
        if self.has_zone(column) {
            format!("s.{name}")
        } else {
            format!("(s.{name} at time zone {})", literal(&self.layout.time_zone.0))
        }
    }

    /// A time with a zone as the column holds it.
    fn write_time(&self, column: &str, time: &str) -> String {
        if self.has_zone(column) {
            format!("({time})")
        } else {
            format!("(({time}) at time zone {})", literal(&self.layout.time_zone.0))
        }
    }

    fn id(&self) -> String {
        format!("s.{}", quoted(&self.layout.id))
    }

    fn id_text(&self) -> String {
        format!("{}::text", self.id())
    }

    /// What the table says of the row's state, in one text.
    fn mark(&self) -> String {
        let text = |column: &str| format!("coalesce(s.{}::text, '-')", quoted(column));
        let mut parts = Vec::new();
        match &self.layout.status {
            Status::Code { column, .. } => parts.push(text(column)),
            Status::Processed | Status::Presence => {}
        }
        if let Some(column) = &self.layout.processed_at {
            parts.push(format!(
                "case when s.{} is null then '-' else 'done' end",
                quoted(column)
            ));
        }
        parts.extend(self.layout.attempts.as_deref().map(text));
        if parts.is_empty() {
            return "'-'::text".to_owned();
        }
        format!("concat_ws('|', {})", parts.join(", "))
    }

    /// Is it to be sent, now or later?
    fn live(&self) -> String {
        format!("({})", self.branches().join(" or "))
    }

    /// The ways in which a row can be live: one for each code, for an index leads to one code at a time.
    fn branches(&self) -> Vec<String> {
        match &self.layout.status {
            Status::Presence => vec!["true".to_owned()],
            Status::Processed => {
                let processed = self.layout.processed_at.as_deref().unwrap_or_default();
                let open = format!("s.{} is null", quoted(processed));
                vec![match (&self.layout.attempts, self.layout.max_attempts) {
                    (Some(column), Some(most)) => {
                        format!("({open} and coalesce(s.{}, 0) < {most})", quoted(column))
                    }
                    _ => open,
                }]
            }
            Status::Code {
                column,
                pending,
                processing,
                failed,
                ..
            } => {
                let is = |code: &str| format!("s.{} = {}", quoted(column), literal(code));
                let mut live = vec![is(pending)];
                live.extend(failed.as_deref().map(is));
                if let Some(code) = processing {
                    live.push(format!("({} and {})", is(code), self.stale()));
                }
                live
            }
        }
    }

    /// Has whoever worked on it gone?
    fn stale(&self) -> String {
        let layout = self.layout;
        if let Some(column) = &layout.locked_until {
            let now = self.write_time(column, "now()");
            return format!("coalesce(s.{0} < {now}, true)", quoted(column));
        }
        let column = layout.locked_at.as_deref().unwrap_or_default();
        let seconds = layout.stale.unwrap_or_default().as_secs();
        let then = self.write_time(column, &format!("now() - interval '{seconds} seconds'"));
        format!("coalesce(s.{} < {then}, true)", quoted(column))
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

    /// What rows are sorted by.
    fn order(&self) -> Vec<String> {
        let columns = self.layout.order.iter().chain([&self.layout.id]);
        columns.map(|column| format!("s.{}", quoted(column))).collect()
    }

    fn text(&self, column: Option<&String>) -> String {
        column.map_or_else(
            || "null::text".to_owned(),
            |column| format!("nullif(s.{}::text, '')", quoted(column)),
        )
    }

    /// The event's id: the row's own where it is a UUID, so that consumers know it by the name that they always did.
    fn event_id(&self) -> String {
        if self.kind(&self.layout.id) == "uuid" {
            self.id()
        } else {
            let source = literal(self.source);
            format!("md5({source} || E'\\x1f' || {})::uuid", self.id_text())
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

    /// JSON, bytes, media type.
    fn content(&self) -> [String; 3] {
        let none = || "null".to_owned();
        match &self.layout.payload {
            Payload::Columns(columns) => {
                let members: Vec<String> = columns
                    .iter()
                    .map(|column| format!("{}, s.{}", literal(column), quoted(column)))
                    .collect();
                let object = format!("jsonb_build_object({})", members.join(", "));
                [object, "null::bytea".to_owned(), "null::text".to_owned()]
            }
            Payload::Column(column) => {
                let name = quoted(column);
                match self.kind(column) {
                    "jsonb" => [
                        format!("coalesce(s.{name}, 'null')"),
                        "null::bytea".to_owned(),
                        "null::text".to_owned(),
                    ],
                    "bytea" => [
                        format!("{}::jsonb", literal(&none())),
                        format!("coalesce(s.{name}, '')"),
                        "null::text".to_owned(),
                    ],
                    // Text arrives as it was written, to the last blank.
                    _ => [
                        format!("{}::jsonb", literal(&none())),
                        format!("convert_to(coalesce(s.{name}::text, ''), 'UTF8')"),
                        "'application/json'::text".to_owned(),
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
            (Some(column), _) => format!("(s.{} + 1)::int", quoted(column)),
            (None, Some(most)) => most.to_string(),
            (None, None) => "null::int".to_owned(),
        }
    }

    fn created_at(&self) -> String {
        match &self.layout.created_at {
            Some(column) => format!("least(coalesce({}, now()), now())", self.read_time(column)),
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

    /// The place of the last row that was taken, each part as the column has it.
    fn floor(&self) -> Vec<String> {
        let columns = self.layout.order.iter().chain([&self.layout.id]);
        (1..)
            .zip(columns)
            .map(|(n, column)| format!("($3::text[])[{n}]::{}", self.kind(column)))
            .collect()
    }

    /// Rows of one branch that are to be taken over, as what they become; locked. After the floor, if there is one.
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
    {aggregate_id} as aggregate_id, {tenant} as tenant_id, {dedupe_key} as dedupe_key,
    {ordering_key} as ordering_key, {severity} as severity, {json} as payload, {body} as body,
    {content_type} as content_type, {headers} as headers, {attempts} as attempts, {max_attempts} as max_attempts,
    {due_at} as due_at, {created_at} as created_at, {places}
  from {table} s
  where {branch} and {due}{after} and not exists (
    select from pillarbox.adopted a where a.source = $1 and a.source_id = {id_text}
      and not (a.ended and not a.behind and a.mark is distinct from {mark})
  )
  order by {order}
  limit $2
  for update of s skip locked",
            id_text = self.id_text(),
            event_id = self.event_id(),
            mark = self.mark(),
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
            table = quoted_table(layout),
            due = self.due(),
        )
    }

    fn import(&self, floor: &[String]) -> String {
        let columns = "id, seq, namespace, topic, event_type, event_version, aggregate_type, aggregate_id, tenant_id, \
                       dedupe_key, ordering_key, severity, payload, body, content_type, headers, attempts, \
                       max_attempts, next_attempt_at, created_at";
        let branches = self.branches();
        let with: Vec<String> = (0..)
            .zip(&branches)
            .map(|(n, branch)| format!("branch_{n} as materialized (\n  {}\n)", self.taken(branch, floor)))
            .collect();
        let all: Vec<String> = (0..branches.len())
            .map(|n| format!("select * from branch_{n}"))
            .collect();
        let places: Vec<String> = (0..self.order().len()).map(|n| format!("place_{n}")).collect();
        format!(
            "with {with}, live as materialized (
  select * from ({all}) as l
  order by {places}
  limit $2
), numbered as materialized (
  select *, nextval('pillarbox.outbox_seq') as seq from live
), born as (
  insert into pillarbox.outbox_events as e ({columns})
  select id, seq, namespace, topic, event_type, event_version, aggregate_type, aggregate_id, tenant_id,
    case when not exists (
      select from pillarbox.outbox_events o where o.namespace = n.namespace and o.topic = n.topic
        and o.dedupe_key = n.dedupe_key and o.dedupe_key is not null and o.id <> n.id
    ) then dedupe_key end,
    ordering_key, severity, payload, body, content_type, headers, attempts, max_attempts,
    case when due_at > now() then due_at else created_at end, created_at
  from numbered n
  order by seq
  on conflict (id) do update set
    seq = excluded.seq, namespace = excluded.namespace, topic = excluded.topic, event_type = excluded.event_type,
    event_version = excluded.event_version, aggregate_type = excluded.aggregate_type,
    aggregate_id = excluded.aggregate_id, tenant_id = excluded.tenant_id, dedupe_key = excluded.dedupe_key,
    ordering_key = excluded.ordering_key, unordered = false, severity = excluded.severity,
    payload = excluded.payload, body = excluded.body, content_type = excluded.content_type,
    headers = excluded.headers, destination = null, status = 'pending', attempts = excluded.attempts,
    max_attempts = excluded.max_attempts, next_attempt_at = excluded.next_attempt_at, locked_by = null,
    locked_until = null, claim_id = null, last_error = null, updated_at = now(), delivered_at = null,
    created_at = excluded.created_at
  where e.status <> 'processing' and e.parent_id is null
  returning e.id
), gone as (
  delete from pillarbox.outbox_events o using born b where o.parent_id = b.id and o.status <> 'processing'
), noted as (
  insert into pillarbox.adopted (source, source_id, event_id, mark)
  select $1, source_id, id, mark from numbered where id in (select id from born)
  on conflict (source, source_id) do update
    set mark = excluded.mark, event_id = excluded.event_id, ended = false, behind = false
  returning 1
)
select (select count(*) from noted), (
  select array[{texts}] from live order by {last} limit 1
)",
            texts = places
                .iter()
                .map(|place| format!("{place}::text"))
                .collect::<Vec<_>>()
                .join(", "),
            last = places
                .iter()
                .map(|place| format!("{place} desc"))
                .collect::<Vec<_>>()
                .join(", "),
            with = with.join(", "),
            all = all.join(" union all "),
            places = places.join(", "),
        )
    }

    /// The row of the table that an adopted row names.
    fn is_its_row(&self) -> String {
        format!("{} = a.source_id::{}", self.id(), self.kind(&self.layout.id))
    }

    fn heed(&self) -> String {
        format!(
            "with changed as materialized (
  select a.source_id, a.event_id, {id} is null or not {live} as is_over
  from pillarbox.adopted a left join {table} s on {is_its_row}
  where a.source = $1 and not a.ended and ({id} is null or (not a.behind and a.mark is distinct from {mark}))
  for update of a skip locked
), free as materialized (
  select * from changed c
  where not exists (
      select from pillarbox.outbox_events e where e.id = c.event_id and e.status || '' = 'processing')
    and not exists (
      select from pillarbox.outbox_events e where e.parent_id = c.event_id and e.status || '' = 'processing')
), dropped as (
  delete from pillarbox.outbox_events e using free f
  where f.is_over and e.id = f.event_id and e.status || '' <> 'processing'
), dropped_siblings as (
  delete from pillarbox.outbox_events e using free f
  where f.is_over and e.parent_id = f.event_id and e.status || '' <> 'processing'
), forgotten as (
  delete from pillarbox.adopted a using free f
  where f.is_over and a.source = $1 and a.source_id = f.source_id
), reset as (
  update pillarbox.adopted a set ended = true from free f
  where not f.is_over and a.source = $1 and a.source_id = f.source_id
)
select count(*) filter (where is_over), count(*) filter (where not is_over) from free",
            id = self.id(),
            live = self.live(),
            table = quoted_table(self.layout),
            is_its_row = self.is_its_row(),
            mark = self.mark(),
        )
    }

    fn lock(&self) -> String {
        format!(
            "select a.event_id from pillarbox.adopted a join {table} s on {is_its_row}
where a.source || '' = $1 and a.event_id = any($2)
for update of s skip locked",
            table = quoted_table(self.layout),
            is_its_row = self.is_its_row(),
        )
    }

    fn forgo(&self) -> String {
        format!(
            "update pillarbox.adopted a set behind = false
where a.source || '' = $1 and a.event_id = any($2) and a.behind and not exists (select from {table} s where {is_its_row})",
            table = quoted_table(self.layout),
            is_its_row = self.is_its_row(),
        )
    }

    fn tell(&self) -> String {
        let told = match &self.layout.status {
            Status::Presence => format!(
                "delete from {} s using family f
  where {} = f.source_id::{} and f.status = 'delivered'",
                quoted_table(self.layout),
                self.id(),
                self.kind(&self.layout.id)
            ),
            Status::Processed | Status::Code { .. } => format!(
                "update {table} s set {set} from family f
  where {id} = f.source_id::{kind} and f.status <> 'processing' and (f.mark = {mark} or f.status = 'delivered')",
                table = quoted_table(self.layout),
                set = self.set(),
                id = self.id(),
                kind = self.kind(&self.layout.id),
                mark = self.mark(),
            ),
        };
        format!(
            "with member as materialized (
  select a.source_id, a.event_id, a.mark, e.*
  from pillarbox.adopted a cross join lateral (
    select id, status, attempts, next_attempt_at, last_error, updated_at from pillarbox.outbox_events
    where id = a.event_id
    union all
    select id, status, attempts, next_attempt_at, last_error, updated_at from pillarbox.outbox_events
    where parent_id = a.event_id
  ) as e
  where a.source || '' = $1 and a.event_id = any($2)
), family as materialized (
  select source_id, event_id, mark,
    case when bool_or(status not in ('pending', 'dead', 'delivered')) then 'processing'
      when bool_or(status = 'pending') then 'pending' when bool_or(status = 'dead') then 'dead'
      else 'delivered' end as status,
    max(attempts) as attempts, min(next_attempt_at) filter (where status = 'pending') as due_at,
    (array_agg(last_error order by updated_at desc) filter (where last_error is not null))[1] as error
  from member group by source_id, event_id, mark
), told as (
  {told}
  returning f.event_id, f.status, {mark} as mark
), noted as (
  update pillarbox.adopted a set mark = t.mark, behind = false, ended = t.status <> 'pending'
  from told t where t.status <> 'delivered' and a.source || '' = $1 and a.event_id = t.event_id
), forgotten as (
  delete from pillarbox.adopted a using told t
  where t.status = 'delivered' and a.source || '' = $1 and a.event_id = t.event_id
), left_alone as (
  update pillarbox.adopted a set behind = false, ended = {ended} or a.event_id not in (select event_id from member)
  where a.source || '' = $1 and a.event_id = any($2) and a.event_id not in (select event_id from told)
)
select count(*) from told",
            mark = match &self.layout.status {
                Status::Presence => "'-'::text".to_owned(),
                Status::Processed | Status::Code { .. } => self.mark(),
            },
            ended = match &self.layout.status {
                Status::Presence => "a.event_id in (select event_id from family where status = 'dead')",
                Status::Processed | Status::Code { .. } => "a.ended",
            },
        )
    }

    /// The source's own columns as the family's state has them.
    fn set(&self) -> String {
        let layout = self.layout;
        let mut set: Vec<String> = Vec::new();
        let mut put = |column: &str, value: String| {
            set.push(format!("{} = ({value})::{}", quoted(column), self.kind(column)));
        };
        if let Status::Code {
            column,
            pending,
            failed,
            delivered,
            dead,
            ..
        } = &layout.status
        {
            let code = |code: &str| format!("{}::{}", literal(code), self.kind(column));
            let own = format!("s.{}", quoted(column));
            put(
                column,
                format!(
                    "case f.status when 'delivered' then {} when 'dead' then {} else case when f.attempts > 0 then {} \
                     else {} end end",
                    code(delivered),
                    dead.as_deref().map_or(own, code),
                    code(failed.as_deref().unwrap_or(pending)),
                    code(pending),
                ),
            );
        }
        if let Some(column) = &layout.processed_at {
            let now = self.write_time(column, "now()");
            put(
                column,
                format!(
                    "case f.status when 'delivered' then {now} else s.{} end",
                    quoted(column)
                ),
            );
        }
        if let Some(column) = &layout.attempts {
            put(column, self.counter());
        }
        if let Some(column) = &layout.error {
            let own = format!("s.{}", quoted(column));
            let cleared = if layout.clears_error { "null" } else { &own };
            put(
                column,
                format!("case f.status when 'delivered' then {cleared} else coalesce(f.error, {own}) end"),
            );
        }
        if let Some(column) = &layout.due_at {
            let due = self.write_time(column, "f.due_at");
            put(
                column,
                format!(
                    "case f.status when 'pending' then {due} else s.{} end",
                    quoted(column)
                ),
            );
        }
        if let Some(column) = &layout.updated_at {
            put(column, self.write_time(column, "now()"));
        }
        for column in [&layout.locked_by, &layout.locked_until, &layout.locked_at]
            .into_iter()
            .flatten()
        {
            put(column, "null".to_owned());
        }
        set.join(", ")
    }

    fn counter(&self) -> String {
        let counted = match self.layout.counts {
            Counts::Claims => "f.attempts".to_owned(),
            Counts::Failures => {
                "greatest(case f.status when 'delivered' then f.attempts - 1 else f.attempts end, 0)"
                    .to_owned()
            }
        };
        match (
            &self.layout.max_retries,
            &self.layout.status,
            self.layout.max_attempts,
        ) {
            // The last attempt is no retry any more.
            (Some(column), _, _) => format!("least({counted}, s.{})", quoted(column)),
            // Nothing else tells that the row is given up on, also if it was refused at the first attempt.
            (None, Status::Processed, Some(most)) => {
                format!("case f.status when 'dead' then greatest({counted}, {most}) else {counted} end")
            }
            (None, Status::Processed | Status::Code { .. } | Status::Presence, _) => counted,
        }
    }

    fn prune(&self, age: Duration) -> Result<String, LayoutError> {
        let Some(column) = &self.layout.processed_at else {
            let why = "`prune` needs `processed_at`: nothing else says how long ago a row was delivered";
            return Err(LayoutError::Impossible(why.to_owned()));
        };
        let then = self.write_time(column, &format!("now() - interval '{} seconds'", age.as_secs()));
        let delivered = match &self.layout.status {
            Status::Code {
                column, delivered, ..
            } => {
                format!("s.{} = {}", quoted(column), literal(delivered))
            }
            Status::Processed | Status::Presence => "true".to_owned(),
        };
        Ok(format!(
            "with gone as (
  delete from {table} s where s.ctid = any(array(
    select s.ctid from {table} s where {delivered} and s.{column} < {then} limit $2 for update skip locked
  ))
  returning {id_text} as source_id
), forgotten as (
  delete from pillarbox.adopted a using gone g where a.source = $1 and a.source_id = g.source_id and a.ended
)
select count(*) from gone",
            table = quoted_table(self.layout),
            column = quoted(column),
            id_text = self.id_text(),
        ))
    }

    fn strangers(&self) -> Option<String> {
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
        // From one value to the next by an index on the column: what is known is stepped over, however much it is.
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
) as strange",
            column = quoted(column),
            table = quoted_table(self.layout),
            known = known.join(", ")
        ))
    }
}
