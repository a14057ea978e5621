//! Every table of the schema is either secured, or has no rows of tenants for a reason that stands here.

use pillarbox_testkit::OPERATOR;
use pillarbox_testkit::store_suite::Harness;
use sqlx::AssertSqlSafe;

use super::super::harness::PostgresHarness;
use super::secured::Secured;

/// Tables without rows of tenants.
const SHARED: [(&str, &str); 11] = [
    ("destinations", "pauses, which all tenants share"),
    ("importers", "which worker imports an adopted table"),
    (
        "inbox",
        "marks by the id of the event; consumers have a policy of their own",
    ),
    ("lane_ranges", "which worker leases which lanes"),
    ("migrations", "versions of the schema"),
    ("pruners", "which worker prunes"),
    (
        "saga_log",
        "a saga has no tenant; orchestrators have a policy of their own",
    ),
    (
        "sagas",
        "a saga has no tenant; orchestrators have a policy of their own",
    ),
    (
        "samples",
        "counts by destination, for metrics; a dispatcher reads them",
    ),
    ("totals", "counts of the whole outbox, for metrics"),
    ("workers", "heartbeats"),
];

async fn rows<T>(harness: &PostgresHarness, sql: &str) -> Vec<T>
where
    T: for<'r> sqlx::FromRow<'r, sqlx::postgres::PgRow> + Send + Unpin,
{
    let sql = harness.sql(&sql.replace("SCHEMA", harness.store.schema()));
    sqlx::query_as(AssertSqlSafe(sql))
        .fetch_all(&harness.pool)
        .await
        .expect("reads")
}

/// The tables that are neither secured nor known to have no rows of tenants, and those that are both.
async fn uncovered(harness: &PostgresHarness) -> Vec<String> {
    let tables: Vec<(String, bool, bool)> = rows(
        harness,
        "select c.relname::text,
           exists (select from pillarbox.tables_of_tenants() as t where t.name = c.relname),
           exists (select from pg_attribute a where a.attrelid = c.oid and a.attname in ('tenant_id', 'tenants') and not a.attisdropped)
         from pg_class c where c.relnamespace = 'SCHEMA'::regnamespace and c.relkind in ('r', 'p', 'm', 'f', 'v')
         order by 1",
    )
    .await;
    let is_shared = |name: &str| SHARED.iter().any(|(shared, _)| *shared == name);
    let found = tables.into_iter().filter(|(name, is_secured, names_tenant)| {
        *is_secured == is_shared(name) || *names_tenant && !is_secured
    });
    found.map(|(name, ..)| name).collect()
}

#[tokio::test]
async fn every_table_with_rows_of_tenants_is_known() {
    let harness = PostgresHarness::direct().await;
    assert_eq!(uncovered(&harness).await, [""; 0]);
    // And a new one is found.
    harness
        .execute(
            "create table pillarbox.channels (id uuid primary key, tenant_id uuid);
             create table pillarbox.secrets (channel uuid, secret text);
             alter table pillarbox.workers add column tenant_id uuid",
        )
        .await;
    assert_eq!(uncovered(&harness).await, ["channels", "secrets", "workers"]);
    harness.clean_up().await;
}

/// A secured table: its name, whether row-level security is enabled and forced, and whether a role bound to a tenant sees rows.
type Table = (String, bool, bool, bool);
/// A policy: its table and name, whether it lets rows in for all commands with both clauses, its clause and its roles.
type Policy = (String, String, bool, String, Vec<String>);

#[tokio::test]
async fn every_secured_table_has_its_policies_with_both_clauses() {
    let secured = Secured::open().await;
    let harness = &secured.harness;
    let tables: Vec<Table> = rows(
        harness,
        "select t.name::text, c.relrowsecurity, c.relforcerowsecurity, t.own_rows is not null
         from pillarbox.tables_of_tenants() as t join pg_class c on c.oid = ('SCHEMA.' || t.name)::regclass",
    )
    .await;
    let policies: Vec<Policy> = rows(
        harness,
        "select c.relname::text, p.polname::text,
           p.polpermissive and p.polcmd = '*' and pg_get_expr(p.polqual, c.oid) = pg_get_expr(p.polwithcheck, c.oid),
           pg_get_expr(p.polqual, c.oid),
           array(select r::regrole::text from unnest(p.polroles) as r order by 1)
         from pg_policy p join pg_class c on c.oid = p.polrelid where c.relnamespace = 'SCHEMA'::regnamespace",
    )
    .await;
    let mut every_tenant = [
        &secured.owner,
        &secured.writer.0,
        &secured.dispatcher.0,
        &secured.any_tenant.0,
    ];
    every_tenant.sort();
    for (table, is_enabled, is_forced, has_own) in &tables {
        assert!(*is_enabled && *is_forced, "{table}");
        let of = |name: &str| {
            let mut found = policies.iter().filter(|it| it.0 == *table && it.1 == name);
            found.next()
        };
        let all = of("every_tenant").expect(table);
        assert!(all.2 && all.3 == "true", "{all:?}");
        assert_eq!(all.4.iter().collect::<Vec<_>>(), every_tenant, "{table}");
        let own = of("own_tenant");
        assert_eq!(own.is_some(), *has_own, "{table}");
        if let Some(own) = own {
            assert!(own.2 && own.3.contains("tenant_id = ( SELECT"), "{own:?}");
            assert_eq!(own.4, std::slice::from_ref(&secured.api.0));
        }
    }
    let own: Vec<(String,)> = rows(
        harness,
        "select c.relname::text from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant_id'
         where c.relnamespace = 'SCHEMA'::regnamespace and c.relkind in ('r', 'p')",
    )
    .await;
    for (table,) in own {
        let has_own = tables.iter().any(|it| it.0 == table && it.3);
        assert!(has_own, "{table} has a tenant_id, and no policy for its own rows");
    }
    // Twice is once.
    let was_on = harness.store.set_row_security(&OPERATOR, true).await;
    assert!(was_on.expect("stays on"));
    secured.clean_up().await;
}
