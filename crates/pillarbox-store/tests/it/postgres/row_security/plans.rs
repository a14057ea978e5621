//! The plans of a dispatcher are the same with row-level security, and a tenant's pages read the tenant's rows.

use pillarbox::internal::envelope::with_columns;
use pillarbox_store::stores::postgres::{Duty, row_security_script};
use pillarbox_testkit::OPERATOR;
use pillarbox_testkit::store_suite::Harness;
use sqlx::{AssertSqlSafe, Row};

use super::super::harness::PostgresHarness;
use super::super::plan::{
    CLAIM_ID, ask_keyed, claim_any_key, claim_expired, claim_free, claim_keyed, claim_read, explain_as, held,
    naming, outbox, read_keyed, route, statement, with,
};
use super::super::privileges::{drop_role, on_duty};
use super::secured::Secured;

/// The plan of a statement as this role, as text.
async fn plan(harness: &PostgresHarness, role: &str, sql: &str) -> String {
    let mut transaction = harness.pool.begin().await.expect("begins");
    let settings = format!(
        "set local role {role}; set local enable_seqscan = off; set local enable_bitmapscan = off; \
         set local enable_mergejoin = off; set local jit = off"
    );
    sqlx::raw_sql(AssertSqlSafe(settings))
        .execute(&mut *transaction)
        .await
        .expect("sets");
    let rows = sqlx::raw_sql(AssertSqlSafe(format!("explain {}", harness.sql(sql))))
        .fetch_all(&mut *transaction)
        .await
        .expect("explains");
    transaction.rollback().await.expect("rolls back");
    let lines: Vec<String> = rows.iter().map(|row| in_order(row.get(0))).collect();
    lines.join("\n")
}

/// The conditions of a filter in one order. PostgreSQL evaluates those first that cannot tell of other rows. Each has the same cost.
fn in_order(line: String) -> String {
    let Some((indent, conditions)) = line.split_once("Filter: ") else {
        return line;
    };
    let mut conditions: Vec<&str> = conditions
        .split(" AND ")
        .map(|one| one.trim_matches(['(', ')']))
        .collect();
    conditions.sort_unstable();
    format!("{indent}Filter: {}", conditions.join(" AND "))
}

/// What a dispatcher runs often.
async fn statements(harness: &PostgresHarness) -> Vec<String> {
    let held = held(harness).await;
    let delivered = [(CLAIM_ID, "uuid"), ("a", "text"), ("1", "int")];
    let other = [
        (CLAIM_ID, "uuid"),
        ("retry", "text"),
        ("1 s", "interval"),
        ("no", "text"),
        ("a", "text"),
        ("1", "int"),
        ("f", "boolean"),
    ];
    vec![
        claim_free(""),
        claim_keyed(""),
        claim_any_key(""),
        read_keyed(""),
        claim_read(),
        claim_expired(),
        ask_keyed(statement!("earlier_keyed")),
        ask_keyed(statement!("barriers_keyed")),
        with(statement!("end_leases"), &["5000"]),
        with(statement!("lost_leases"), &["''", "''", "null"]),
        naming(statement!("settle_delivered"), &held, &delivered, &[]),
        naming(statement!("settle_other"), &held, &other, &[]),
        naming(statement!("settle_unkept"), &held, &[(CLAIM_ID, "uuid")], &[]),
        naming(statement!("renew"), &held, &[], &["interval '1 minute'"]),
        naming(statement!("renew_rows"), &held, &[], &["interval '1 minute'"]),
        route(&held),
        statement!("find").to_owned(),
        statement!("is_abandoned").to_owned(),
    ]
}

#[tokio::test]
async fn a_dispatchers_plans_are_the_same_with_row_level_security() {
    let harness = outbox(20_000, true).await;
    let (role, store) = on_duty(&harness, Duty::Dispatcher).await;
    let delete = format!("grant delete on pillarbox.outbox_events to {role}");
    harness.execute(&delete).await;
    let statements = statements(&harness).await;
    // The indexes of tenants are there both times: they could be chosen too.
    let script = row_security_script(harness.store.schema(), true).expect("a sound name");
    for create in script
        .split_inclusive(";\n")
        .filter(|it| it.contains("create index"))
    {
        let created = sqlx::raw_sql(AssertSqlSafe(create.to_owned()))
            .execute(&harness.pool)
            .await;
        created.expect("creates");
    }
    harness.execute("vacuum analyze pillarbox.outbox_events").await;
    let mut off = Vec::new();
    for sql in &statements {
        off.push(plan(&harness, &role, sql).await);
    }
    harness
        .store
        .set_row_security(&OPERATOR, true)
        .await
        .expect("switches on");
    store.check_dispatcher().await.expect("has its policy");
    for (sql, off) in statements.iter().zip(off) {
        let on = plan(&harness, &role, sql).await;
        assert_eq!(on, off, "{sql}");
        assert!(!on.contains("of_tenant"), "{on}");
    }
    store.close().await;
    drop_role(&harness, &role).await;
    harness.clean_up().await;
}

/// The page of a list, as list.rs writes it for a tenant.
fn page(condition: &str, order: &str) -> String {
    let columns = with_columns(statement!("record")).replace("/*payload*/", "null::jsonb");
    format!("{columns} where {condition} and TENANT order by {order} limit 50")
}

/// A statement of a tenant with its fragments.
fn whole(sql: &str) -> String {
    let body = |fragment: &str| -> String {
        let lines = fragment.lines().filter(|line| !line.starts_with("--"));
        lines.map(|line| format!("{line}\n")).collect()
    };
    let sql = body(sql).replace("/*processing*/", &body(statement!("processing_of_tenant")));
    match sql.split_once("/*own $") {
        None => sql,
        Some((before, rest)) => {
            let (number, after) = rest.split_once("*/").expect("a parameter");
            let own = body(statement!("own_keyed")).replace("/*tenant*/", &format!("${number}"));
            format!("{before}{own}{after}")
        }
    }
}

#[tokio::test]
async fn a_tenants_pages_read_the_tenants_rows() {
    let secured = Secured::open().await;
    let harness = &secured.harness;
    harness
        .execute(
            "alter table pillarbox.outbox_events set (autovacuum_enabled = false);
             insert into pillarbox.outbox_events (namespace, topic, payload, tenant_id, ordering_key, destination, status, attempts,
               created_at, next_attempt_at, delivered_at)
             select 'shop', 'orders', '{}', lpad(to_hex(n % 1000 + 1), 32, '0')::uuid, case when n % 2 = 0 then 'key-' || n % 5000 end,
               case when n % 3 = 0 then 'broker' end,
               case n / 10000 when 0 then 'dead' when 1 then 'pending' when 2 then 'pending' else 'delivered' end,
               case when n / 10000 < 2 then 3 else 0 end, now() - interval '1 hour',
               case when n / 10000 = 1 then now() + interval '1 hour' else now() - interval '1 hour' end, null
             from generate_series(0, 99999) as n;
             insert into pillarbox.audit (subject, kind, tenant_id, action, objects, count)
             select 'api', 'service', lpad(to_hex(n % 1000 + 1), 32, '0')::uuid, 'events.retry', '{}', 1
             from generate_series(0, 19999) as n",
        )
        .await;
    let tenant = format!("{:032x}", 7);
    let own = format!("tenant_id = '{tenant}'");
    let first = Secured::as_role(&secured.api.0, &tenant);
    for statistics in [false, true] {
        if statistics {
            harness
                .execute("vacuum analyze pillarbox.outbox_events, pillarbox.audit")
                .await;
        }
        let check = async |sql: &str, rows: f64, indexes: &[&str]| {
            // With the condition of the store, and by row-level security alone.
            for condition in [own.as_str(), "true"] {
                let sql = sql.replace("TENANT", condition);
                let ran = explain_as(harness, &first, &sql, true).await;
                ran.reads_at_most(rows, indexes);
            }
        };
        // A hundred rows of each tenant: ten dead, ten that were tried, ten fresh ones.
        check(&page("true", "seq desc"), 50.0, &["of_tenant"]).await;
        check(&page("status = 'delivered'", "seq desc"), 100.0, &["of_tenant"]).await;
        check(&page("open = 2", "seq desc"), 10.0, &["open_of_tenant"]).await;
        check(&page("open = 3", "seq desc"), 0.0, &[]).await;
        let tenant = format!("'{tenant}'::uuid");
        for tenant in [tenant.as_str(), "null::uuid"] {
            let null = "null";
            let lines = [tenant, null, null, null, null, null, null, "100"];
            check(
                &with(statement!("audit_lines"), &lines),
                20.0,
                &["audit_by_tenant"],
            )
            .await;
        }
        for (limit, tenant) in [("100000", tenant.as_str()), ("100000", "null::uuid")] {
            let stats = with(statement!("stats"), &["null", limit, tenant]);
            check(&stats, 100.0, &["of_tenant"]).await;
        }
        for (sql, values, rows) in [
            // Thirty rows of the tenant are not delivered. A head is read again.
            (
                statement!("pending_of_tenant"),
                &["null::text[]", "10001::bigint"][..],
                20.0,
            ),
            (
                statement!("stats_large_of_tenant"),
                &["null::text[]", "100000::bigint"],
                40.0,
            ),
            (
                statement!("destinations_of_tenant"),
                &["null::text[]", "10000::bigint", "'{}'", "200"],
                30.0,
            ),
            (statement!("keyed_backlogs_of_tenant"), &["null::text[]"], 30.0),
            (
                statement!("blocked_of_tenant"),
                &["null::text[]", "100", "1000"],
                60.0,
            ),
            (
                statement!("unserved_of_tenant"),
                &["array['']", "array['shop']", "100", "1000"],
                60.0,
            ),
        ] {
            let values: Vec<&str> = values.iter().copied().chain([tenant.as_str()]).collect();
            check(&with(&whole(sql), &values), rows, &["open_of_tenant"]).await;
        }
    }
    secured.clean_up().await;
}

#[tokio::test]
async fn the_count_of_a_large_tenant_reads_no_row_of_those_before_it() {
    let secured = Secured::open().await;
    let harness = &secured.harness;
    let tenant = format!("{:032x}", 2);
    harness
        .execute(
            "alter table pillarbox.outbox_events set (autovacuum_enabled = false);
             insert into pillarbox.outbox_events (namespace, topic, payload, tenant_id)
             select 'shop', 'orders', '{}', lpad((1 + n / 21000)::text, 32, '0')::uuid from generate_series(0, 29999) as n",
        )
        .await;
    harness.execute("vacuum analyze pillarbox.outbox_events").await;
    let first = Secured::as_role(&secured.api.0, &tenant);
    let own = with(
        statement!("stats"),
        &["null", "500", &format!("'{tenant}'::uuid")],
    );
    let ran = explain_as(harness, &first, &own, false).await;
    ran.reads_at_most(501.0, &["of_tenant"]);
    // For all tenants it stops at the limit, in no order.
    let stats = with(statement!("stats"), &["null", "500", "null::uuid"]);
    let plan = plan(harness, &secured.any_tenant.0, &stats).await;
    assert!(!plan.contains("Sort"), "{plan}");
    secured.clean_up().await;
}
