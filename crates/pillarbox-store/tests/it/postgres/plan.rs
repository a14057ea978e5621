//! The plans of frequent statements: they use an index, and read a bounded number of rows in a table of any size. Counted
//! in rows, not in time, with statistics and without.

use pillarbox::internal::envelope::with_columns;
use pillarbox_testkit::store_suite::Harness;
use serde_json::Value;
use sqlx::AssertSqlSafe;

use super::harness::PostgresHarness;

pub(super) const ME: &str = "'00000000-0000-0000-0000-000000000001'::uuid";
pub(super) const CLAIM_ID: &str = "00000000-0000-0000-0000-000000000002";
pub(super) const CLAIM: &str = "'00000000-0000-0000-0000-000000000002'::uuid";

/// A statement of the store.
macro_rules! statement {
    ($name:literal) => {
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/src/stores/postgres/sql/",
            $name,
            ".sql"
        ))
    };
}

pub(super) use statement;

/// Values for the parameters. From the last to the first, for `$1` is also the beginning of `$10`.
pub(super) fn with(statement: &str, values: &[&str]) -> String {
    let mut text = with_columns(statement);
    for (number, value) in values.iter().enumerate().rev() {
        text = text.replace(&format!("${}", number + 1), value);
    }
    text
}

pub(super) fn claim_free(destination: &str) -> String {
    let destinations = format!("array['{destination}']");
    let values = [
        ME,
        CLAIM,
        "interval '1 minute'",
        &destinations,
        "array['shop']",
        "array[1000]",
        "array[0]",
        "25",
        "100000000",
        "array[500]",
    ];
    with(statement!("claim_free"), &values)
}

pub(super) fn claim_keyed(destination: &str) -> String {
    let destinations = format!("array['{destination}']");
    let values = [
        ME,
        CLAIM,
        "interval '1 minute'",
        &destinations,
        "array['shop']",
        "array[1000]",
        "77",
        "25",
        "100000000",
        "'{[0,4096)}'",
    ];
    with(statement!("claim_keyed"), &values)
}

/// The claim by key from all keys.
pub(super) fn claim_any_key(destination: &str) -> String {
    let statement = claim_keyed(destination);
    assert!(statement.contains("/*which keys*/open in (1, 2)"));
    statement.replace("/*which keys*/open in (1, 2)", "open < 3")
}

/// Reads fresh rows with a key: a thousand, 250 of each bucket of lanes.
pub(super) fn read_keyed(destination: &str) -> String {
    let destinations = format!("array['{destination}']");
    let values = [
        ME,
        CLAIM,
        "25",
        &destinations,
        "array['shop']",
        "array[1000]",
        &array([1; 32], "bigint"),
        &array(0..32, "int"),
        &array([i64::MIN; 32], "bigint"),
        &array([250; 32], "bigint"),
        "false",
    ];
    with(statement!("read_keyed"), &values)
}

/// Asks about 500 keys.
pub(super) fn ask_keyed(statement: &str) -> String {
    let keys = "(select 'key-' || n as key, n from generate_series(0, 499) as n order by n) as k";
    let column = |what: &str| format!("array(select {what} from {keys})");
    let values = [
        column("''::text"),
        column("'shop'::text"),
        column("pillarbox.lane(key)"),
        column("key"),
        column("9223372036854775807"),
        column("0"),
        CLAIM.to_owned(),
    ];
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    with(statement, &values)
}

/// Claims a thousand rows that were read.
pub(super) fn claim_read() -> String {
    let column = |what: &str| {
        format!(
            "array(select {what} from pillarbox.outbox_events where open = 0 and lane is not null and status = 'pending' \
             and coalesce(destination, '') = '' and namespace = 'shop' order by seq limit 1000)"
        )
    };
    claim_read_of(&column("ctid::text"), &column("id"))
}

/// Claims rows of these versions and ids.
pub(super) fn claim_read_of(versions: &str, ids: &str) -> String {
    with(
        statement!("claim_read"),
        &[ME, CLAIM, "interval '1 minute'", versions, ids],
    )
}

pub(super) fn claim_expired() -> String {
    let statement =
        statement!("claim_expired").replace("\n/*expired*/\n", &format!("\n{}", statement!("expired")));
    let values = [
        ME,
        "0",
        "2",
        "25",
        "null",
        "'{}'",
        "16",
        CLAIM,
        "interval '1 minute'",
        "100000000",
    ];
    with(&statement, &values)
}

fn claim_fair(limit: &str) -> String {
    let limits = format!("array[{limit}]");
    let values = [
        ME,
        CLAIM,
        "interval '1 minute'",
        "array['']",
        "array['shop']",
        &limits,
        "25",
        "100000000",
        "array['00000000-0000-0000-0000-000000000000'::uuid]",
        "7",
    ];
    with(statement!("claim_fair"), &values)
}

/// The ids of rows that the worker holds.
pub(super) async fn held(harness: &PostgresHarness) -> Vec<String> {
    let sql = harness.sql(&format!(
        "select id::text from pillarbox.outbox_events where claim_id = {CLAIM} and status = 'processing'"
    ));
    let ids = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(&harness.pool);
    ids.await.expect("reads")
}

/// An array as the driver sends it: the planner knows how long it is.
fn array<T: std::fmt::Display>(items: impl IntoIterator<Item = T>, kind: &str) -> String {
    let items: Vec<String> = items.into_iter().map(|item| format!("'{item}'")).collect();
    format!("array[{}]::{kind}[]", items.join(", "))
}

/// A statement that names rows: all that the worker holds, with the same values for each.
pub(super) fn naming(statement: &str, held: &[String], columns: &[(&str, &str)], rest: &[&str]) -> String {
    let claim = CLAIM.trim_end_matches("::uuid").trim_matches('\'');
    let mut values = vec![
        ME.to_owned(),
        array(held, "uuid"),
        array(vec![claim; held.len()], "uuid"),
    ];
    values.extend(
        columns
            .iter()
            .map(|(value, kind)| array(vec![value; held.len()], kind)),
    );
    values.extend(rest.iter().map(|value| (*value).to_owned()));
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    with(statement, &values)
}

/// All of them to two destinations each.
pub(super) fn route(held: &[String]) -> String {
    let claim = CLAIM.trim_end_matches("::uuid").trim_matches('\'');
    let count = held.len();
    let values = [
        ME.to_owned(),
        array(held, "uuid"),
        array(vec![claim; count], "uuid"),
        array(vec!["a"; count], "text"),
        array(vec![9; count], "int"),
        array(vec!["t"; count], "boolean"),
        array(held, "uuid"),
        array(held.iter().map(|_| uuid::Uuid::new_v4()), "uuid"),
        array(vec!["b"; count], "text"),
        array(vec![9; count], "int"),
    ];
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    with(statement!("route"), &values)
}

/// A table with so many delivered rows and something of everything to do.
pub(super) async fn outbox(delivered: u32, statistics: bool) -> PostgresHarness {
    let harness = PostgresHarness::direct().await;
    // Unlogged: the same indexes in a tenth of the time.
    harness
        .execute(
            "alter table pillarbox.outbox_events set unlogged; \
             alter table pillarbox.outbox_events set (autovacuum_enabled = false)",
        )
        .await;
    harness
        .execute(&format!(
            "insert into pillarbox.outbox_events (id, namespace, topic, payload, ordering_key, destination, status, delivered_at)
             select ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'shop', 'orders', '{{}}',
               case when n % 2 = 0 then 'key-' || n % 500 end, case when n % 3 = 0 then 'broker' end, 'delivered', now()
             from generate_series(1, {delivered}) as n"
        ))
        .await;
    harness
        .execute(&format!(
            "insert into pillarbox.lane_ranges select 'shop', '', n, 32, 32, {ME}, now() + interval '1 day', false from generate_series(0, 31) as n;
             insert into pillarbox.outbox_events (namespace, topic, payload) select 'shop', 'orders', '{{}}' from generate_series(1, 2000);
             insert into pillarbox.outbox_events (namespace, topic, payload, created_at, next_attempt_at, attempts)
             select 'shop', 'orders', '{{}}', now() - interval '1 hour', now() - interval '1 minute', 1 from generate_series(1, 1000);
             insert into pillarbox.outbox_events (namespace, topic, payload, ordering_key)
             select 'shop', 'orders', '{{}}', 'key-' || n % 500 from generate_series(1, 2000) as n;
             insert into pillarbox.outbox_events (namespace, topic, payload, status, attempts, locked_by, locked_until, claim_id)
             select 'shop', 'orders', '{{}}', 'processing', 1, {ME}, now() + interval '1 hour', {CLAIM} from generate_series(1, 100);
             insert into pillarbox.outbox_events (namespace, topic, payload, ordering_key, status, attempts, locked_by, locked_until, claim_id)
             select 'shop', 'orders', '{{}}', 'held-' || n, 'processing', 1, {ME}, now() + interval '1 hour', {CLAIM} from generate_series(1, 100) as n;
             insert into pillarbox.outbox_events (namespace, topic, payload, status, attempts, locked_by, locked_until, claim_id)
             select 'shop', 'orders', '{{}}', 'processing', 1, {ME}, now() - interval '1 hour', {ME} from generate_series(1, 30);
             insert into pillarbox.leases (claim_id, first_row, worker, until, rows)
             select claim_id, (array_agg(id))[1], locked_by, min(locked_until), array_agg(id) from pillarbox.outbox_events
             where status = 'processing' group by claim_id, locked_by"
        ))
        .await;
    if statistics {
        harness.execute("vacuum analyze pillarbox.outbox_events").await;
    }
    harness
}

/// What a plan did.
pub(super) struct Ran {
    /// Rows of the outbox that were fetched, whether they were wanted or not.
    read: f64,
    /// Rows that were compared with each other in vain: many where a join goes through both sides row by row.
    compared: f64,
    indexes: Vec<String>,
    text: String,
}

/// Runs a statement with the settings of the store's own transactions, or without any, and rolls back.
async fn explain(harness: &PostgresHarness, sql: &str, settings: bool) -> Ran {
    explain_as(harness, "", sql, settings).await
}

/// The same after this statement, such as one that sets the role.
pub(super) async fn explain_as(harness: &PostgresHarness, first: &str, sql: &str, settings: bool) -> Ran {
    let mut transaction = harness.pool.begin().await.expect("begins");
    sqlx::raw_sql(AssertSqlSafe(first.to_owned()))
        .execute(&mut *transaction)
        .await
        .expect("sets");
    if settings {
        let settings = "set local enable_seqscan = off; set local enable_bitmapscan = off; \
                        set local enable_mergejoin = off; set local jit = off";
        sqlx::raw_sql(settings)
            .execute(&mut *transaction)
            .await
            .expect("sets");
    }
    let explain = format!(
        "explain (analyze, costs off, timing off, format json) {}",
        harness.sql(sql)
    );
    let row = sqlx::raw_sql(AssertSqlSafe(explain))
        .fetch_one(&mut *transaction)
        .await
        .expect("explains");
    transaction.rollback().await.expect("rolls back");
    let plan: Value = sqlx::Row::get(&row, 0);
    let mut ran = Ran {
        read: 0.0,
        compared: 0.0,
        indexes: Vec::new(),
        text: serde_json::to_string_pretty(&plan).expect("is JSON"),
    };
    ran.walk(&plan[0]["Plan"]);
    ran
}

impl Ran {
    fn walk(&mut self, node: &Value) {
        let number = |field: &str| node[field].as_f64().unwrap_or(0.0);
        let kind = node["Node Type"].as_str().unwrap_or_default();
        if node["Relation Name"] == "outbox_events" && kind.contains("Scan") {
            assert_ne!(kind, "Seq Scan", "{}", self.text);
            let rows = number("Actual Rows")
                + number("Rows Removed by Filter")
                + number("Rows Removed by Index Recheck");
            self.read += rows * number("Actual Loops");
        }
        self.compared += number("Rows Removed by Join Filter") * number("Actual Loops");
        if let Some(index) = node["Index Name"].as_str() {
            self.indexes
                .push(index.trim_start_matches("outbox_events_").to_owned());
        }
        for child in node["Plans"].as_array().into_iter().flatten() {
            self.walk(child);
        }
    }

    pub(super) fn reads_at_most(&self, rows: f64, indexes: &[&str]) {
        assert!(self.read <= rows, "{} rows were read: {}", self.read, self.text);
        assert!(
            self.compared <= 20.0 * rows,
            "{} rows were compared: {}",
            self.compared,
            self.text
        );
        for index in indexes {
            assert!(
                self.indexes.iter().any(|used| used == index),
                "{index}: {}",
                self.text
            );
        }
    }
}

/// Everything that runs often, on a table with so much history.
async fn check_everything(delivered: u32) {
    for statistics in [false, true] {
        let harness = outbox(delivered, statistics).await;
        let run = async |sql: &str| explain(&harness, sql, true).await;
        // A claim fetches each row twice: to choose it, and to change it.
        run(&claim_free(""))
            .await
            .reads_at_most(2_000.0, &["fresh", "waiting"]);
        // A row with a key is fetched to choose it, and twice to claim it. The test's own six lists of rows read 2,100 each.
        run(&read_keyed(""))
            .await
            .reads_at_most(1_032.0, &["fresh_keyed", "tried"]);
        run(&read_keyed("broker"))
            .await
            .reads_at_most(1.0, &["fresh_keyed", "tried", "keyed"]);
        run(&ask_keyed(statement!("earlier_keyed")))
            .await
            .reads_at_most(500.0, &["keyed"]);
        run(&ask_keyed(statement!("barriers_keyed")))
            .await
            .reads_at_most(500.0, &["tried"]);
        run(&claim_read())
            .await
            .reads_at_most(2_000.0 + 12_600.0, &["fresh_keyed"]);
        // And where claims go from key to key, twice more: once for its key, and once for its place among the others.
        run(&claim_keyed("")).await.reads_at_most(0.0, &["tried"]);
        run(&claim_any_key("")).await.reads_at_most(4_000.0, &["keyed"]);
        run(&claim_any_key("broker")).await.reads_at_most(0.0, &["keyed"]);
        let end = with(statement!("end_leases"), &["5000"]);
        // Of thirty rows: to find what is held, to lock it, and to change it.
        run(&end).await.reads_at_most(90.0, &["pkey"]);
        harness.execute(&end).await;
        run(&claim_expired())
            .await
            .reads_at_most(100.0, &["own_leases", "pkey"]);
        let held = held(&harness).await;
        let named = naming(
            statement!("settle_delivered"),
            &held,
            &[(CLAIM_ID, "uuid"), ("a", "text"), ("1", "int")],
            &[],
        );
        // Two hundred are named: a fetch each, and one more to say which are lost.
        run(&named).await.reads_at_most(400.0, &["pkey"]);
        let columns = [
            (CLAIM_ID, "uuid"),
            ("retry", "text"),
            ("1 s", "interval"),
            ("no", "text"),
            ("a", "text"),
            ("1", "int"),
            ("f", "boolean"),
        ];
        let named = naming(statement!("settle_other"), &held, &columns, &[]);
        run(&named).await.reads_at_most(400.0, &["pkey"]);
        let named = naming(statement!("settle_delete"), &held, &[(CLAIM_ID, "uuid")], &[]);
        run(&named).await.reads_at_most(400.0, &["pkey"]);
        let named = naming(statement!("settle_unkept"), &held, &[(CLAIM_ID, "uuid")], &[]);
        run(&named).await.reads_at_most(400.0, &["pkey", "siblings"]);
        // The claim's lease is renewed, and no row is read. Then each is read twice, to find those that are lost.
        let named = naming(statement!("renew"), &held, &[], &["interval '1 minute'"]);
        run(&named).await.reads_at_most(0.0, &["leases_pkey"]);
        let named = naming(statement!("renew_rows"), &held, &[], &["interval '1 minute'"]);
        run(&named).await.reads_at_most(400.0, &["pkey"]);
        let lost = with(statement!("lost_leases"), &["''", "''", "null"]);
        run(&lost)
            .await
            .reads_at_most(400.0, &["fresh", "waiting", "keyed"]);
        // A row is fetched to lock it, for each of its two members, to change it, and to copy it.
        run(&route(&held))
            .await
            .reads_at_most(1_000.0, &["pkey", "keyed"]);
        // What an idle worker asks has no settings.
        let look = explain(&harness, statement!("find"), false).await;
        look.reads_at_most(50.0, &["fresh", "waiting", "keyed"]);
        let sweep = explain(&harness, statement!("is_abandoned"), false).await;
        sweep.reads_at_most(10.0, &["leases_until", "own_leases", "spent"]);
        harness.clean_up().await;
    }
}

#[tokio::test]
async fn reads_are_bounded_beside_ten_thousand_delivered_rows() {
    check_everything(10_000).await;
}

#[tokio::test]
async fn reads_are_bounded_beside_a_million_delivered_rows() {
    check_everything(1_000_000).await;
}

#[tokio::test]
#[ignore = "takes minutes: docs/testing.md says how to run it"]
async fn reads_are_bounded_beside_five_million_delivered_rows() {
    check_everything(5_000_000).await;
}

#[tokio::test]
async fn a_hundred_thousand_rows_behind_a_blocked_key_are_not_read() {
    for statistics in [false, true] {
        let harness = outbox(1_000, statistics).await;
        harness
            .execute(
                "insert into pillarbox.outbox_events (namespace, topic, payload, ordering_key, status, attempts)
                 values ('shop', 'orders', '{}', 'blocked', 'dead', 25);
                 insert into pillarbox.outbox_events (namespace, topic, payload, ordering_key)
                 select 'shop', 'orders', '{}', 'blocked' from generate_series(1, 100000)",
            )
            .await;
        if statistics {
            harness.execute("vacuum analyze pillarbox.outbox_events").await;
        }
        let claim = explain(&harness, &claim_any_key(""), true).await;
        claim.reads_at_most(4_000.0, &["keyed"]);
        let read = explain(&harness, &read_keyed(""), true).await;
        read.reads_at_most(1_033.0, &["fresh_keyed"]);
        let look = explain(&harness, statement!("find"), false).await;
        look.reads_at_most(50.0, &["fresh", "waiting", "keyed"]);
        harness.clean_up().await;
    }
}

#[tokio::test]
async fn a_fair_claim_reads_no_scheduled_rows() {
    for statistics in [false, true] {
        let harness = PostgresHarness::direct().await;
        harness.store.ensure_fair_index().await.expect("creates");
        harness
            .execute(
                "insert into pillarbox.outbox_events (namespace, topic, payload, tenant_id, next_attempt_at)
                 select 'shop', 'orders', '{}', gen_random_uuid(), now() + interval '1 day' from generate_series(1, 10000)",
            )
            .await;
        if statistics {
            harness.execute("vacuum analyze pillarbox.outbox_events").await;
        }
        let nothing = explain(&harness, &claim_fair("1000"), true).await;
        nothing.reads_at_most(0.0, &["waiting", "fair"]);
        harness
            .execute(
                "insert into pillarbox.outbox_events (namespace, topic, payload, tenant_id)
                 select 'shop', 'orders', '{}', gen_random_uuid() from generate_series(1, 5000);
                 insert into pillarbox.outbox_events (namespace, topic, payload, tenant_id, created_at, next_attempt_at)
                 select 'shop', 'orders', '{}', gen_random_uuid(), now() - interval '1 hour', now() - interval '1 minute'
                 from generate_series(1, 5000)",
            )
            .await;
        if statistics {
            harness.execute("vacuum analyze pillarbox.outbox_events").await;
        }
        // Each tenant's fresh row to step there and to choose it, the window of waiting rows, and each row to change it.
        let claim = explain(&harness, &claim_fair("100"), true).await;
        claim.reads_at_most(200.0 + 1_200.0 + 200.0, &["waiting", "fair", "pkey"]);
        harness.clean_up().await;
    }
}

#[tokio::test]
async fn ten_thousand_destinations_are_stepped_through_not_read() {
    for statistics in [false, true] {
        let harness = outbox(1_000, false).await;
        harness
            .execute(
                "insert into pillarbox.outbox_events (namespace, topic, payload, destination, ordering_key)
                 select 'shop', 'orders', '{}', 'channel-' || n % 10000, case when n % 2 = 0 then 'key-' || n % 7 end
                 from generate_series(1, 60000) as n",
            )
            .await;
        if statistics {
            harness.execute("vacuum analyze pillarbox.outbox_events").await;
        }
        // A hundred sources, and for each at most three to find it, two heads and the first rows with a key.
        let look = explain(&harness, statement!("find"), false).await;
        look.reads_at_most(102.0 * 21.0, &["fresh", "waiting", "keyed"]);
        let free = explain(&harness, &claim_free("channel-5001"), true).await;
        free.reads_at_most(12.0, &["fresh"]);
        let read = explain(&harness, &read_keyed("channel-5000"), true).await;
        read.reads_at_most(7.0, &["fresh_keyed"]);
        let keyed = explain(&harness, &claim_any_key("channel-5000"), true).await;
        keyed.reads_at_most(24.0, &["keyed"]);
        harness.clean_up().await;
    }
}
