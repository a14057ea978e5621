//! The binary on a real PostgreSQL, each test in a schema of its own.

use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::command::pillarbox;
use crate::daemon::Daemon;
use crate::fixture::{Fixture, postgres_url};
use crate::receiver::{Behaviour, Receiver};

const LOG: &str = "[[destination]]\nname = \"log\"\ntype = \"log\"\n";

#[test]
fn a_plain_insert_reaches_a_webhook() {
    let receiver = Receiver::start(Behaviour::Accepts);
    let fixture = Fixture::postgres(&receiver.destination("hook"));
    assert!(fixture.run(&["migrate"]).success().contains("from version 0 to "));
    assert!(fixture.run(&["migrate"]).success().contains("up to date"));
    let daemon = fixture.daemon(&[]);
    daemon.wait_until_ready();
    fixture.sql("insert into SCHEMA.outbox_events (namespace, topic, payload) values ('shop', 'orders', '{\"n\": 1}')");
    fixture
        .run(&["enqueue", "shop", "orders", "{\"n\": 2}"])
        .success();
    daemon.wait_for_stats("two delivered", |stats| stats["delivered"] == 2);
    let mut bodies = receiver.bodies();
    bodies.sort();
    assert_eq!(bodies, ["{\"n\": 1}", "{\"n\": 2}"]);
    daemon.stop_blocking();
    let listed = fixture
        .run(&["events", "ls", "--status", "delivered", "--json"])
        .success();
    assert_eq!(listed.lines().count(), 2, "{listed}");
}

#[test]
fn routes_choose_the_destination_and_what_matches_none_is_held() {
    let receiver = Receiver::start(Behaviour::Accepts);
    let config = format!(
        "{LOG}[[destination]]\nname = \"hook\"\ntype = \"webhook\"\nurl = \"{}\"\n\
         [[route]]\ntopic = \"orders.*\"\nto = \"hook\"\n[[route]]\nnamespace = \"audit\"\nto = \"log\"\n",
        receiver.url()
    );
    let fixture = Fixture::postgres(&config);
    let daemon = fixture.daemon(&["--migrate"]);
    daemon.wait_until_ready();
    for (namespace, topic, payload) in [
        ("shop", "orders.new", "1"),
        ("audit", "x", "2"),
        ("shop", "other", "3"),
    ] {
        fixture.run(&["enqueue", namespace, topic, payload]).success();
    }
    daemon.wait_for_stats("two delivered, one held", |stats| {
        stats["delivered"] == 2 && stats["pending"] == 1 && stats["unrouted"] == 1
    });
    assert_eq!(receiver.bodies(), ["1"]);
    assert_eq!(daemon.wait_for_event()["payload"], 2);
    assert_eq!(daemon.stdout().lines().count(), 1);
    daemon.stop_blocking();
    let held = fixture.run(&["events", "ls", "--status", "pending"]).success();
    assert!(held.contains("no route matches"), "{held}");
}

#[test]
fn two_daemons_that_migrate_at_once_both_serve() {
    let fixture = Fixture::postgres(LOG);
    let one = fixture.daemon(&["--migrate"]);
    let other = fixture.daemon(&["--migrate"]);
    one.wait_until_ready();
    other.wait_until_ready();
    fixture.run(&["enqueue", "shop", "orders", "{}"]).success();
    one.wait_for_stats("one delivered", |stats| stats["delivered"] == 1);
    one.stop_blocking();
    other.stop_blocking();
}

#[test]
fn a_database_without_an_outbox_says_run_migrate() {
    let fixture = Fixture::postgres(LOG);
    for arguments in [
        &["run", "--listen", "127.0.0.1:0", "--log", "error"][..],
        &["stats"],
        &["enqueue", "a", "b", "1"],
    ] {
        let error = fixture.run(arguments).failure(1);
        assert!(
            error.contains(fixture.schema()) && error.contains("run `pillarbox migrate`"),
            "{arguments:?}: {error}"
        );
    }
}

#[test]
fn a_newer_schema_is_refused() {
    let fixture = Fixture::postgres(LOG);
    fixture.run(&["migrate"]).success();
    fixture.sql("insert into SCHEMA.migrations (version, name) values (999, 'from the future')");
    for arguments in [
        &["run", "--listen", "127.0.0.1:0", "--log", "error"][..],
        &["run", "--migrate", "--listen", "127.0.0.1:0", "--log", "error"],
        &["migrate"],
    ] {
        let error = fixture.run(arguments).failure(1);
        assert!(
            error.contains("version 999") && error.contains("newer pillarbox"),
            "{arguments:?}: {error}"
        );
    }
}

#[test]
fn a_schema_of_another_build_is_refused() {
    let fixture = Fixture::postgres(LOG);
    fixture.run(&["migrate"]).success();
    fixture.sql("update SCHEMA.migrations set checksum = 'of another text'");
    for arguments in [
        &["run", "--listen", "127.0.0.1:0", "--log", "error"][..],
        &["run", "--migrate", "--listen", "127.0.0.1:0", "--log", "error"],
        &["migrate"],
        &["config", "check", "--connect"],
        &["stats"],
    ] {
        let error = fixture.run(arguments).failure(1);
        assert!(
            error.contains("another build of version 1"),
            "{arguments:?}: {error}"
        );
    }
}

#[test]
fn the_printed_sql_makes_an_outbox_that_the_binary_knows() {
    let fixture = Fixture::postgres(LOG);
    let sql = fixture
        .run(&[
            "migrate",
            "--print",
            "--dialect",
            "postgres",
            "--schema",
            fixture.schema(),
        ])
        .success();
    fixture.sql(&sql);
    assert!(
        fixture
            .run(&["migrate"])
            .success()
            .contains("up to date, at version ")
    );
    fixture.run(&["stats"]).success();
}

#[test]
fn a_destination_that_is_fair_gets_its_index_when_the_daemon_starts() {
    let receiver = Receiver::start(Behaviour::Accepts);
    let fixture = Fixture::postgres(&format!("{}fair_by = \"tenant\"\n", receiver.destination("hook")));
    let daemon = fixture.ready();
    daemon.wait_for_log("index for fair shares created");
    // Dividing by nothing is an error: the statement runs only if the index is there.
    fixture.sql("select 1 / (to_regclass('SCHEMA.outbox_events_fair') is not null)::int");
    for (n, tenant) in [
        "0190c2a4-8f4e-7c3a-9d51-0f2b6d1c7e55",
        "0190c2a4-8f4e-7c3a-9d51-0f2b6d1c7e56",
    ]
    .iter()
    .enumerate()
    {
        fixture.enqueue(&["shop", "orders", &n.to_string(), "--tenant", tenant]);
    }
    daemon.wait_for_stats("both tenants are served", |stats| stats["delivered"] == 2);
    daemon.stop_blocking();

    let plain = Fixture::postgres(LOG);
    plain.ready().stop_blocking();
    plain.sql("select 1 / (to_regclass('SCHEMA.outbox_events_fair') is null)::int");
}

#[test]
fn a_migration_that_has_to_wait_says_so_and_goes_on() {
    let fixture = Fixture::postgres(LOG);
    fixture.run(&["migrate"]).success();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let lock = format!(
        "begin; lock table {}.migrations in access exclusive mode",
        fixture.schema()
    );
    let other = runtime.block_on(async {
        let mut connection = PgConnection::connect(&postgres_url())
            .await
            .expect("PostgreSQL is there");
        let locked = sqlx::raw_sql(AssertSqlSafe(lock)).execute(&mut connection);
        locked.await.expect("locks");
        connection
    });
    let mut migration = Daemon::start(pillarbox(fixture.path(), &["migrate"]));
    migration.wait_for_log("still migrating");
    runtime.block_on(other.close()).expect("closes");
    assert!(migration.exit_blocking().success(), "{}", migration.log());
    assert!(
        migration.stdout().contains("up to date"),
        "{}",
        migration.stdout()
    );
}

#[test]
fn a_slow_statement_is_not_printed() {
    let fixture = Fixture::postgres(LOG);
    fixture.run(&["migrate"]).success();
    // Longer than the second after which sqlx logs a statement.
    fixture.sql(
        "create function SCHEMA.wait() returns trigger language plpgsql as 'begin perform pg_sleep(1.1); return new; end'; \
         create trigger wait before insert on SCHEMA.outbox_events for each row execute function SCHEMA.wait()",
    );
    let enqueued = fixture.run(&["enqueue", "shop", "orders", "1"]);
    assert_eq!(enqueued.stderr, "");
    enqueued.success();
}

#[test]
fn a_missing_database_is_named() {
    let fixture = Fixture::postgres(LOG);
    let url = postgres_url();
    let (server, _) = url.rsplit_once('/').expect("a URL with a database");
    let url = format!("{server}/no_such_database");
    let error = fixture.run(&["stats", "--database", &url]).failure(1);
    assert!(
        error.contains("database \"no_such_database\" does not exist (3D000)"),
        "{error}"
    );
}

/// Rows that no claim can read, past the table's constraints.
#[test]
fn an_unreadable_row_is_dead_and_the_others_are_delivered() {
    let receiver = Receiver::start(Behaviour::Accepts);
    let fixture = Fixture::postgres(&format!(
        "{}on_dead = \"continue\"\n",
        receiver.destination("hook")
    ));
    fixture.run(&["migrate"]).success();
    fixture.sql(
        "alter table SCHEMA.outbox_events drop constraint times_are_in_the_years_1_to_9999; \
         insert into SCHEMA.outbox_events (namespace, topic, payload, created_at) \
         select 'shop', 'orders', to_jsonb(n), case n when 50 then 'infinity' else now() end from generate_series(1, 100) n; \
         insert into SCHEMA.outbox_events (namespace, topic, payload, ordering_key, destination, created_at) \
         select 'shop', 'orders', to_jsonb(n), 'k', 'hook', case n when 2 then '-infinity' else now() end \
         from generate_series(1, 3) n",
    );
    let daemon = fixture.ready();
    let started = Instant::now();
    daemon.wait_for_stats("its neighbours are delivered, and its key continues", |stats| {
        stats["delivered"] == 101 && stats["dead"] == 2
    });
    assert!(
        started.elapsed() < Duration::from_secs(30),
        "{:?}",
        started.elapsed()
    );
    daemon.wait_for_log("event is dead: its row cannot be read");
    let dead = fixture.json(&["events", "ls", "--status", "dead"]);
    assert_eq!(dead.len(), 2);
    for event in &dead {
        assert_eq!(event["last_error"], "unreadable: 22008", "{event}");
        let id = event["id"].as_str().expect("an id");
        let shown = fixture.run(&["events", "show", id]).success();
        assert!(shown.contains("unreadable: 22008"), "{shown}");
    }
    let id = dead[0]["id"].as_str().expect("an id");
    fixture.run(&["events", "retry", id]).success();
    daemon.wait_for_stats("it is dead again", |stats| {
        stats["dead"] == 2 && stats["pending"] == 0
    });
    fixture.run(&["events", "delete", id, "--yes"]).success();
    daemon.wait_for_stats("it is deleted", |stats| stats["dead"] == 1);
    daemon.stop_blocking();
}

/// One abandoned BEGIN and one start of a daemon must not stop the application.
#[test]
fn a_start_with_fair_by_delays_no_producer() {
    let receiver = Receiver::start(Behaviour::Accepts);
    let fixture = Fixture::postgres(&format!("{}fair_by = \"tenant\"\n", receiver.destination("hook")));
    fixture.run(&["migrate"]).success();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let insert = format!(
        "begin; insert into {}.outbox_events (namespace, topic, payload) values ('shop', 'orders', '1')",
        fixture.schema()
    );
    let open = runtime.block_on(async {
        let mut connection = PgConnection::connect(&postgres_url())
            .await
            .expect("PostgreSQL is there");
        let inserted = sqlx::raw_sql(AssertSqlSafe(insert)).execute(&mut connection);
        inserted.await.expect("inserts");
        connection
    });
    let daemon = fixture.daemon(&[]);
    daemon.wait_until_ready();
    daemon.wait_for_log("creating the index for fair shares");
    fixture.sql(
        "set statement_timeout = '5s'; \
         insert into SCHEMA.outbox_events (namespace, topic, payload) values ('shop', 'orders', '2')",
    );
    daemon.wait_for_stats("it is served meanwhile", |stats| stats["delivered"] == 1);
    runtime.block_on(open.close()).expect("closes");
    daemon.wait_for_log("index for fair shares created");
    daemon.stop_blocking();
}
