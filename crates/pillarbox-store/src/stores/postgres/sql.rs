//! The statements, with the name of the schema.
//!
//! The files are valid SQL for the schema `pillarbox`, so that they can be run by hand. Another name replaces it when the
//! store is created. A comment such as `/*delivery*/` is replaced by a shared fragment, or by a value where the simple
//! protocol has no parameters.

use std::sync::Arc;

use sqlx::AssertSqlSafe;
use uuid::Uuid;

use crate::store::{Backlog, Heartbeat, Scope, StoreError};
use pillarbox::internal::envelope::with_columns;
use pillarbox::internal::schema::{check_name, in_schema};

/// A statement. Its only variable parts are the checked name of the schema and escaped values.
#[derive(Debug, Clone)]
pub(super) struct Statement(Arc<str>);

impl Statement {
    pub(super) fn safe(&self) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(self.0.clone())
    }

    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// A claim that returns only the ids and backlogs of its rows, and so reads none of them.
    pub(super) fn returning_ids(&self) -> Self {
        let (claim, _) = self.0.rsplit_once("\nreturning ").unwrap_or((&self.0, ""));
        Self(format!("{claim}\nreturning e.id, e.namespace, e.destination").into())
    }

    /// This SELECT of columns of `outbox_events e`, for the rows $1 in their order: one result for each, of nulls if it is gone.
    pub(super) fn in_order(&self, schema: &str) -> Self {
        let columns = self
            .0
            .split_once("\nfrom ")
            .map_or(&*self.0, |(columns, _)| columns);
        Self(
            format!(
                "{columns} from unnest($1::uuid[]) with ordinality as given (wanted, position)\n\
                 left join \"{schema}\".outbox_events e on e.id = given.wanted order by position"
            )
            .into(),
        )
    }

    /// The same SELECT without headers. They are the only JSON that a list of rows reads.
    pub(super) fn without_headers(&self) -> Self {
        let name = [" e.headers,", " headers,"]
            .into_iter()
            .find(|name| self.0.contains(name));
        let text = self
            .0
            .replacen(name.unwrap_or_default(), " '{}'::jsonb as headers,", 1);
        Self(text.into())
    }

    /// Replaces what stands between two comments, and them.
    fn between(&self, from: &str, to: &str, value: &str) -> Self {
        let found = self.0.split_once(from);
        let found = found.and_then(|(before, rest)| Some((before, rest.split_once(to)?.1)));
        found.map_or_else(
            || self.clone(),
            |(before, after)| Self(format!("{before}{value}{after}").into()),
        )
    }

    /// A statement that prunes, and returns the rows for the archive.
    pub(super) fn archiving(&self) -> Self {
        self.with(&[
            (" /*archived*/", ", to_jsonb(e)::text as archived"),
            ("/*rows*/null::text[]", "array_agg(archived)"),
        ])
    }

    /// A statement that prunes, without the deletion and the locks.
    pub(super) fn counting(&self) -> Self {
        self.with(&[
            (
                "\n  delete from ",
                "\n  select e.open is null as is_delivered from ",
            ),
            ("\n  returning e.open is null as is_delivered /*archived*/", ""),
            ("\n  for update of e skip locked", ""),
        ])
    }

    /// Replaces comments by values, in one pass from left to right. So a value that looks like a comment stays a value.
    pub(super) fn with(&self, values: &[(&str, &str)]) -> Self {
        let mut text = String::with_capacity(self.0.len());
        let mut rest: &str = &self.0;
        let next = |rest: &str| {
            let places = values.iter().filter_map(|pair| Some((rest.find(pair.0)?, *pair)));
            places.min_by_key(|(place, _)| *place)
        };
        while let Some((place, (name, value))) = next(rest) {
            text += &rest[..place];
            text += value;
            rest = &rest[place + name.len()..];
        }
        Self((text + rest).into())
    }
}

/// Declares the statements. Each is in the file of its name.
macro_rules! statements {
    ($($name:ident)+) => {
        #[derive(Debug, Clone)]
        pub(super) struct Sql {
            pub(super) schema: Arc<str>,
            $(pub(super) $name: Statement,)+
        }

        impl Sql {
            pub(super) fn new(schema: &str) -> Result<Self, StoreError> {
                check_name(schema)?;
                let statement = |text: &str| Statement(in_schema(&with_fragments(text), schema).into());
                Ok(Self {
                    schema: schema.into(),
                    $($name: statement(include_str!(concat!("sql/", stringify!($name), ".sql"))),)+
                })
            }

            #[cfg(test)]
            fn all(&self) -> Vec<&Statement> {
                vec![$(&self.$name),+]
            }
        }
    };
}

statements! {
    adopted_table adopted_tables audit audit_lines barriers_keyed blocked blocked_of_tenant bottoms claim_by_key claim_expired claim_fair claim_free
    check_quotas claim_keyed claim_read count_again count_each_tenant count_mapping count_quotas count_retries create_lanes defer_write_back delete delete_lanes delivered_namespaces deregister destinations destinations_of_tenant detect_ended due_failures earlier_keyed end_leases end_unreadable fair_index families family find heartbeat holders import_failure in_progress index_state is_abandoned is_expired keyed_backlogs keyed_backlogs_of_tenant lanes lease_importer lease_lanes lease_pruner live_workers lock_mapping lock_read lost_leases note_role note_tried parked pause pending pending_of_tenant pending_write_backs postpone_failures processing processing_of_tenant prunable_dead prunable_delivered prune_dead prune_delivered prune_marks prune_sagas quota_state quotas read read_keyed record record_end renew renew_rows restore resume retry retry_imports role_index route sample_destinations sample_known sample_newest sample_others sample_rest sample_store sample_turn
    saga_log saga_record settle_delete settle_delivered settle_other settle_unkept skip stats stats_large stats_large_of_tenant sweep
    tenant_index tenant_open_index tenant_pages_index unchanged_events unleased_lanes unpark_blocking unpark_unrouted unserved unserved_of_tenant wait workers write_counts
}

/// The statement with its fragments.
fn with_fragments(text: &str) -> String {
    let delivery = format!("{}, ", body(include_str!("sql/delivery.sql")).trim_end());
    let text = text
        .replace(
            "\n/*expired*/\n",
            &format!("\n{}", body(include_str!("sql/expired.sql"))),
        )
        .replace(
            "\n/*finished*/\n",
            &format!("\n{}", body(include_str!("sql/finished.sql"))),
        )
        .replace(
            "\n/*over*/\n",
            &format!(
                "\n{}",
                body(include_str!("sql/over.sql"))
                    .replace("/*is_over*/", &body(include_str!("sql/is_over.sql")))
            ),
        )
        .replace(
            "\n    /*processing*/\n",
            &body(if text.contains("processing_of_tenant.sql") {
                include_str!("sql/processing_of_tenant.sql")
            } else {
                include_str!("sql/processing.sql")
            }),
        )
        .replace("returning /*delivery*/ ", &format!("returning {delivery}"))
        .replace("select /*delivery*/ ", &format!("select {delivery}"));
    with_columns(&with_own_keyed(&text))
}

/// The statement of one tenant with its keyed rows. It names the parameter that has the tenant.
fn with_own_keyed(text: &str) -> String {
    let Some((before, rest)) = text.split_once("/*own $") else {
        return text.to_owned();
    };
    let Some((number, after)) = rest.split_once("*/") else {
        return text.to_owned();
    };
    let own = body(include_str!("sql/own_keyed.sql")).replace("/*tenant*/", &format!("${number}"));
    format!("{before}{}{after}", own.trim_end())
}

/// A fragment in the middle of a statement loses its comments.
fn body(fragment: &str) -> String {
    fragment
        .lines()
        .filter(|line| !line.starts_with("--"))
        .map(|line| format!("{line}\n"))
        .collect()
}

impl Sql {
    /// The simple protocol has no parameters, so the values are literals.
    pub(super) fn find(
        &self,
        scope: &Scope,
        served: Option<&[String]>,
        after: Option<&Backlog>,
        limit: usize,
    ) -> Statement {
        let (is_served, jump) = match served.map(list) {
            None => ("true".to_owned(), "null".to_owned()),
            Some(names) if names.is_empty() => ("next.destination = ''".to_owned(), "null".to_owned()),
            Some(names) => (
                format!("next.destination in ('', {names})"),
                format!(
                    r#"(select min(name collate "C") from unnest(array[{names}]) as name
         where name collate "C" > next.destination)"#
                ),
            ),
        };
        let scope = match scope.names() {
            None => String::new(),
            Some(names) if names.is_empty() => "and false".to_owned(),
            Some(names) => format!("and next.namespace in ({})", list(&names)),
        };
        let after = after.map_or_else(
            || r#"'' collate "C", '' collate "C""#.to_owned(),
            |backlog| {
                let destination = literal(backlog.destination.as_deref().unwrap_or_default());
                let namespace = literal(&backlog.namespace);
                format!(r#"{destination} collate "C", {namespace} collate "C""#)
            },
        );
        self.find.with(&[
            ("/*scope*/", &scope),
            ("/*is_served*/true", &is_served),
            ("/*jump*/null", &jump),
            (r#"/*after*/'' collate "C", '' collate "C""#, &after),
            ("/*limit*/100", &limit.to_string()),
        ])
    }

    /// Is there a row for a sweep?
    pub(super) fn is_abandoned(&self, max_attempts: i32) -> Statement {
        self.is_abandoned
            .with(&[("/*limit*/25", &max_attempts.to_string())])
    }

    /// Namespaces with delivered rows, before this one in their order.
    pub(super) fn delivered_namespaces(&self, before: Option<&str>, limit: usize) -> Statement {
        let below = before.map_or("true".to_owned(), |name| format!("namespace < {}", literal(name)));
        self.delivered_namespaces
            .with(&[("/*below*/true", &below), ("/*limit*/100", &limit.to_string())])
    }

    pub(super) fn lanes(&self, backlogs: &[Backlog]) -> Statement {
        let namespaces: Vec<String> = backlogs.iter().map(|backlog| backlog.namespace.clone()).collect();
        let destinations: Vec<String> = backlogs.iter().map(destination).collect();
        self.lanes.with(&[
            ("/*namespaces*/''", &list(&namespaces)),
            ("/*destinations*/''", &list(&destinations)),
        ])
    }

    pub(super) fn heartbeat(&self, heartbeat: &Heartbeat) -> Statement {
        let scope = heartbeat.scope.names().map_or_else(
            || "null".to_owned(),
            |names| format!("array[{}]::text[]", list(&names)),
        );
        let ttl = format!("make_interval(secs => {})", heartbeat.ttl.as_secs_f64());
        let breakers = format!("{}::jsonb", literal(&heartbeat.breakers_json()));
        self.heartbeat.with(&[
            ("/*worker*/", &id(heartbeat.worker)),
            ("/*host*/", &literal(&heartbeat.host)),
            ("/*version*/", &literal(&heartbeat.version)),
            ("/*scope*/", &scope),
            ("/*ttl*/", &ttl),
            ("/*claimed*/", &heartbeat.claimed.to_string()),
            ("/*delivered*/", &heartbeat.delivered.to_string()),
            ("/*failed*/", &heartbeat.failed.to_string()),
            ("/*breakers*/", &breakers),
            (
                "/*serves*/",
                &format!("{}::jsonb", literal(&heartbeat.serves_json())),
            ),
        ])
    }

    /// Is an index of events there?
    pub(super) fn index_state(&self, name: &str) -> Statement {
        self.index_state.with(&[("/*index*/", name)])
    }

    /// Which quotas are there?
    pub(super) fn quota_state(&self, worker: Uuid) -> Statement {
        self.quota_state.with(&[("/*worker*/", &id(worker))])
    }

    pub(super) fn deregister(&self, worker: Uuid) -> Statement {
        self.deregister.with(&[("/*worker*/", &id(worker))])
    }

    /// Waits for the sequence to move.
    pub(super) fn wait(&self, seen: i64, until_ended: bool, patience: f64) -> Statement {
        self.wait.with(&[
            ("/*seen*/0", &seen.to_string()),
            ("/*until_ended*/false", &until_ended.to_string()),
            ("/*patience*/2", &patience.to_string()),
        ])
    }

    /// Locks mapping rows of the rows that an operator names. There are few. A role that is bound to a tenant would read the
    /// siblings of all tenants to find out that it has none.
    pub(super) fn lock_mapping_of_few(&self) -> Statement {
        self.lock_mapping
            .between("/*are there any*/", "/*siblings*/", "true")
    }

    /// Locks mapping rows without waiting for other transactions.
    pub(super) fn lock_mapping_at_once(&self) -> Statement {
        self.lock_mapping.with(&[("/*skip*/", "skip locked")])
    }

    /// Claims by key from all keys, not only from those that have a row which was tried.
    pub(super) fn claim_any_key(&self) -> Statement {
        self.claim_keyed
            .with(&[("/*which keys*/open in (1, 2)", "open < 3")])
    }

    /// Parked rows.
    pub(super) fn parked(&self, what: &str) -> Statement {
        self.parked.with(&[("/*what*/ true", what)])
    }
}

/// The destination of a backlog as tables and indexes have it.
pub(super) fn destination(backlog: &Backlog) -> String {
    backlog.destination.clone().unwrap_or_default()
}

fn id(id: Uuid) -> String {
    format!("'{id}'::uuid")
}

fn list(names: &[String]) -> String {
    names
        .iter()
        .map(|name| literal(name))
        .collect::<Vec<_>>()
        .join(", ")
}

/// A string literal that is safe with either value of `standard_conforming_strings`. NUL, which no text can contain, is
/// removed.
pub(super) fn literal(text: &str) -> String {
    let clean = text.replace('\0', "").replace('\\', "\\\\").replace('\'', "''");
    format!("E'{clean}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_schema_replaces_every_mention() {
        let sql = Sql::new("my_outbox").expect("a sound name");
        for statement in sql.all() {
            assert!(!statement.0.contains("pillarbox."), "{}", statement.0);
        }
        assert!(sql.claim_free.0.contains("\"my_outbox\".outbox_events"));
    }

    #[test]
    fn every_fragment_is_in_its_place() {
        let sql = Sql::new("pillarbox").expect("a sound name");
        for claim in [
            &sql.claim_free,
            &sql.claim_fair,
            &sql.claim_keyed,
            &sql.claim_read,
            &sql.claim_expired,
        ] {
            assert!(claim.0.contains(") as contested, e.id"), "{}", claim.0);
        }
        for settle in [
            &sql.settle_delivered,
            &sql.settle_other,
            &sql.settle_delete,
            &sql.settle_unkept,
        ] {
            assert!(settle.0.contains("finished as materialized"), "{}", settle.0);
        }
        assert!(
            sql.stats_large.0.contains("lateral unnest(l.rows)"),
            "{}",
            sql.stats_large.0
        );
        for statement in [&sql.claim_expired, &sql.is_expired] {
            assert!(
                statement.0.contains("with mine as materialized"),
                "{}",
                statement.0
            );
        }
    }

    #[test]
    fn a_part_of_a_statement_has_another_form_for_tenants_and_operators() {
        let sql = Sql::new("my_outbox").expect("a sound name");
        for (statement, tenant) in [
            (&sql.blocked_of_tenant, "$4"),
            (&sql.keyed_backlogs_of_tenant, "$2"),
            (&sql.unserved_of_tenant, "$5"),
        ] {
            let own = format!("where tenant_id = {tenant} and open = 2 order by seq");
            assert!(statement.0.contains(&own), "{}", statement.0);
        }
        assert!(sql.stats_large_of_tenant.0.contains(".in_flight($2)"));
        let few = sql.lock_mapping_of_few().0;
        assert!(few.contains("where true\n    and id = any($1)"), "{few}");
    }

    #[test]
    fn no_value_can_break_out_of_its_literal() {
        let sql = Sql::new("pillarbox").expect("a sound name");
        let after = Backlog {
            destination: Some("it's".into()),
            namespace: "n\\".into(),
        };
        let find = sql.find(&Scope::of([r"a'b\"]), Some(&[r"d'\".to_owned()]), Some(&after), 7);
        assert!(find.0.contains(r"next.namespace in (E'a''b\\')"), "{}", find.0);
        assert!(
            find.0.contains(r#"(E'it''s' collate "C", E'n\\' collate "C")"#),
            "{}",
            find.0
        );
        assert!(find.0.contains("s.found <= 7"), "{}", find.0);
        assert!(
            find.0.contains(r"next.destination in ('', E'd''\\')"),
            "{}",
            find.0
        );
    }

    #[test]
    fn a_value_that_looks_like_a_name_stays_a_value() {
        let statement = Statement("select /*a*/, /*b*/".into());
        let text = statement.with(&[("/*a*/", "'/*b*/'"), ("/*b*/", "2")]);
        assert_eq!(text.0.as_ref(), "select '/*b*/', 2");
    }
}
