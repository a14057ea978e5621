//! Statements without a condition for the tenant, as the role of an API: row-level security alone protects the others.

use pillarbox_store::Operate;
use pillarbox_store::audit::AuditFilter;
use pillarbox_testkit::operator_of;
use pillarbox_testkit::store_suite::Harness;
use sqlx::{AssertSqlSafe, Row};

use super::super::plan::{statement, with};
use super::secured::{OTHER_TENANT, Secured, TENANT, event};

/// Runs a statement as the role of an API, with this setting, and commits. Returns how many rows it returned or changed.
async fn run(secured: &Secured, tenant: &str, sql: &str) -> Result<u64, String> {
    let api = &secured.api.1;
    let mut transaction = api.pool().begin().await.expect("begins");
    let set = format!("set local pillarbox.tenant = '{tenant}'");
    sqlx::raw_sql(AssertSqlSafe(set))
        .execute(&mut *transaction)
        .await
        .expect("sets");
    let sql = secured.harness.sql(sql);
    let rows = sqlx::raw_sql(AssertSqlSafe(sql))
        .fetch_all(&mut *transaction)
        .await;
    let rows = rows.map_err(|error| error.to_string())?;
    transaction.commit().await.expect("commits");
    Ok(rows.len() as u64)
}

/// The tables of which the role may read something, each with a column that it may read.
async fn readable(secured: &Secured) -> Vec<(String, String)> {
    let text = "select c.relname::text, min(a.attname)::text from pg_class c
         join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and has_column_privilege($1, c.oid, a.attnum, 'select')
         where c.relnamespace = $2::text::regnamespace and c.relkind = 'r' group by c.relname";
    sqlx::query_as(text)
        .bind(&secured.api.0)
        .bind(secured.harness.store.schema())
        .fetch_all(&secured.harness.pool)
        .await
        .expect("reads")
}

#[tokio::test]
async fn a_statement_without_a_condition_sees_and_changes_one_tenant() {
    let secured = Secured::open().await;
    secured.interleave(3).await;
    let harness = &secured.harness;
    // One row of each in the other tables too.
    for tenant in [
        format!("'{TENANT}'"),
        format!("'{OTHER_TENANT}'"),
        "null".to_owned(),
    ] {
        harness
            .execute(&format!(
                "insert into pillarbox.audit (subject, kind, tenant_id, action, objects, count)
                 values ('test', 'service', {tenant}, 'events.retry', '{{}}', 0);
                 insert into pillarbox.adopted (adopted_table, row_id, event_id, tenant_id, fingerprint)
                 values ('t', '1', gen_random_uuid(), {tenant}, '')"
            ))
            .await;
    }
    let shared = ["destinations", "workers", "migrations"];
    let (own, other) = (TENANT.to_string(), OTHER_TENANT.to_string());
    let readable = readable(&secured).await;
    assert!(readable.len() >= 6, "{readable:?}");
    for (table, column) in readable {
        if shared.contains(&table.as_str()) {
            continue;
        }
        let all = format!("select {column} from pillarbox.{table}");
        let expected = if table == "outbox_events" { 3 } else { 1 };
        assert_eq!(run(&secured, &own, &all).await, Ok(expected), "{table}");
        assert_eq!(run(&secured, &other, &all).await, Ok(expected), "{table}");
        // Unset, and the nil UUID however it is written.
        for nobody in [
            "",
            "00000000-0000-0000-0000-000000000000",
            "{00000000000000000000000000000000}",
        ] {
            assert_eq!(run(&secured, nobody, &all).await, Ok(0), "{table} {nobody:?}");
        }
        for malformed in [
            "all",
            "%",
            "' or true --".replace('\'', "''").as_str(),
            &own[..35],
        ] {
            let error = run(&secured, malformed, &all).await.expect_err("is refused");
            assert!(error.contains("invalid input syntax for type uuid"), "{error}");
        }
    }
    // What the store runs, with null for the tenant: its own condition lets everything through.
    let all = "array(select id from pillarbox.outbox_events union all select gen_random_uuid())";
    let every = {
        let ids = sqlx::raw_sql(AssertSqlSafe(
            harness.sql("select id from pillarbox.outbox_events"),
        ))
        .fetch_all(&harness.pool)
        .await
        .expect("reads");
        let ids: Vec<String> = ids
            .iter()
            .map(|row| format!("'{}'", row.get::<uuid::Uuid, _>(0)))
            .collect();
        assert_eq!(ids.len(), 18);
        format!("array[{}]::uuid[]", ids.join(", "))
    };
    let page = format!("select * from pillarbox.outbox_events where id = any({every}) or id = any({all})");
    assert_eq!(run(&secured, &own, &page).await, Ok(3));
    for (text, count) in [
        (with(statement!("retry"), &[&every, "null"]), 3),
        (with(statement!("skip"), &[&every, "'no'", "null"]), 3),
        (
            with(
                statement!("audit_lines"),
                &["null", "null", "null", "null", "null", "null", "null", "100"],
            ),
            1,
        ),
        (
            with(
                statement!("family"),
                &[&every
                    .replace("array[", "(array[")
                    .replace("]::uuid[]", "]::uuid[])[1]")],
            ),
            0,
        ),
        (with(statement!("delete"), &[&every, "null"]), 3),
    ] {
        let found = run(&secured, &own, &text).await;
        assert_eq!(found, Ok(count), "{text}");
    }
    let left: i64 = sqlx::query_scalar(AssertSqlSafe(
        harness.sql("select count(*) from pillarbox.outbox_events"),
    ))
    .fetch_one(&harness.pool)
    .await
    .expect("counts");
    assert_eq!(left, 15);
    secured.clean_up().await;
}

#[tokio::test]
async fn no_row_is_written_for_another_tenant() {
    let secured = Secured::open().await;
    let (own, other) = (TENANT.to_string(), OTHER_TENANT.to_string());
    secured
        .enqueue(&[event().tenant(TENANT)])
        .await
        .expect("enqueues");
    let line = |tenant: &str| {
        format!(
            "insert into pillarbox.audit (subject, kind, tenant_id, action, objects, count)
             values ('api', 'service', {tenant}, 'events.retry', '{{}}', 0)"
        )
    };
    assert_eq!(run(&secured, &own, &line(&format!("'{own}'"))).await, Ok(0));
    for tenant in [format!("'{other}'"), "null".to_owned()] {
        let error = run(&secured, &own, &line(&tenant)).await.expect_err("is refused");
        assert!(error.contains("violates row-level security policy"), "{error}");
    }
    let lines = secured
        .api
        .1
        .audit(&operator_of(TENANT), &AuditFilter::default())
        .await;
    assert_eq!(lines.expect("lists").len(), 1);
    // Nor is a row given to another, even with the permission to write the column.
    let api = &secured.api.0;
    secured
        .harness
        .execute(&format!(
            "grant update (tenant_id) on pillarbox.outbox_events to {api}"
        ))
        .await;
    let give = format!("update pillarbox.outbox_events set tenant_id = '{other}'");
    let error = run(&secured, &own, &give).await.expect_err("is refused");
    assert!(error.contains("violates row-level security policy"), "{error}");
    secured.clean_up().await;
}
