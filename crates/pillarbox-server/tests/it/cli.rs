//! Help, version, init, migrate --print: what needs no database.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use pillarbox_testkit::environment::variable;

use crate::command::run;

#[test]
fn help_teaches_with_examples_and_exit_codes() {
    let folder = tempfile::tempdir().unwrap();
    let help = run(folder.path(), &["--help"]).success();
    for word in [
        "dev",
        "run",
        "migrate",
        "grant",
        "enqueue",
        "events",
        "keys",
        "destinations",
        "workers",
        "stats",
        "config",
        "init",
        "version",
        "Exit codes",
        "Start here",
    ] {
        assert!(help.contains(word), "{word}: {help}");
    }
    for command in ["dev", "run", "migrate", "enqueue", "stats"] {
        let help = run(folder.path(), &[command, "--help"]).success();
        assert!(help.contains("Examples:"), "{command}: {help}");
    }
    assert!(
        run(folder.path(), &["--version"])
            .success()
            .starts_with("pillarbox 0.")
    );
}

#[test]
fn version_names_the_commit_the_schema_and_the_sinks() {
    let folder = tempfile::tempdir().unwrap();
    let short = run(folder.path(), &["version"]).success();
    assert_eq!(short, run(folder.path(), &["--version"]).success());

    let long = run(folder.path(), &["version", "--verbose"]).success();
    assert!(long.starts_with(&short), "{long}");
    for line in ["\ncommit: ", "\nschema: postgres ", "\nsinks: rabbitmq, "] {
        assert!(long.contains(line), "{line}: {long}");
    }

    let json: serde_json::Value =
        serde_json::from_str(&run(folder.path(), &["version", "--json"]).success()).unwrap();
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
    assert!(json["commit"].is_null() || json["commit"].is_string(), "{json}");
    for database in ["postgres", "sqlite"] {
        assert!(json["schema"][database].as_i64().unwrap() > 0, "{json}");
    }
    let has = |list: &str, sink: &str| {
        let sinks = json["sinks"][list].as_array().unwrap();
        sinks.iter().any(|name| name == sink)
    };
    assert!(has("built_in", "log") && has("built_in", "webhook"), "{json}");
    assert_eq!(has("built_in", "kafka"), cfg!(feature = "full"), "{json}");
    assert_eq!(has("not_built_in", "kafka"), !cfg!(feature = "full"), "{json}");
    assert_eq!(
        long.contains("--features full"),
        !cfg!(feature = "full"),
        "{long}"
    );
}

#[test]
fn wrong_usage_exits_with_2() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [
        &["frobnicate"][..],
        &["events", "ls", "--status", "gone"],
        &["events", "show", "42"],
        &["enqueue", "shop"],
        &["stats"],
        &["stats", "--database", "mysql://h/d"],
        &["run", "--config", "nowhere.toml"],
        &["migrate", "--print"],
        &["stats", "--log", "a=b=c", "--database", "x.db"],
    ] {
        assert_eq!(run(folder.path(), arguments).code, 2, "{arguments:?}");
    }
}

#[test]
fn an_unreachable_database_is_reported_with_its_cause_within_seconds() {
    let folder = tempfile::tempdir().unwrap();
    // Nothing listens on port 1.
    let started = Instant::now();
    let url = "postgres://u:hunter2@127.0.0.1:1/d";
    let error = run(folder.path(), &["stats", "--database", url]).failure(1);
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "2 s, and a slow machine"
    );
    assert!(error.contains("connection refused (127.0.0.1:1)"), "{error}");
    assert!(!error.contains("hunter2"), "{error}");

    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let url = format!("postgres://u:hunter2@{address}/d");
    let error = run(folder.path(), &["stats", "--database", &url]).failure(1);
    assert!(
        error.contains(&format!("no answer within 10s ({address})")),
        "{error}"
    );

    let url = "postgres://u:hunter2@no-such-host.invalid/d";
    let error = run(folder.path(), &["stats", "--database", url]).failure(1);
    assert!(error.contains("(no-such-host.invalid:5432)"), "{error}");
}

#[test]
fn a_wrong_password_and_a_failed_tls_handshake_are_reported_with_their_cause() {
    let folder = tempfile::tempdir().unwrap();
    let url = variable("PILLARBOX_TEST_POSTGRES_SCRAM_URL");
    let wrong = url.replace(":secret@", ":hunter2@");
    let error = run(folder.path(), &["stats", "--database", &wrong]).failure(1);
    assert!(
        error.contains("password authentication failed for user \"scram\" (28P01)"),
        "{error}"
    );
    assert!(!error.contains("hunter2"), "{error}");

    let (_, address) = url.rsplit_once('@').unwrap();
    let (address, _) = address.split_once('/').unwrap();
    let untrusted = format!("{url}?sslmode=verify-full");
    let error = run(folder.path(), &["stats", "--database", &untrusted]).failure(1);
    assert!(
        error.contains(&format!("invalid peer certificate: UnknownIssuer ({address})")),
        "{error}"
    );
    assert!(!error.contains("secret"), "{error}");
}

#[test]
fn a_bare_name_is_no_database() {
    let folder = tempfile::tempdir().unwrap();
    for command in ["stats", "migrate"] {
        let error = run(folder.path(), &[command, "--database", "shop"]).failure(2);
        assert!(
            error.contains("--database: `shop` is neither a URL nor an existing file")
                && error.contains("postgres://user@host/shop"),
            "{error}"
        );
    }
    assert!(!folder.path().join("shop").exists());
    run(folder.path(), &["migrate", "--database", "./shop"]).success();
    run(folder.path(), &["stats", "--database", "shop"]).success();
}

#[test]
fn a_command_without_a_database_says_how_to_name_one() {
    let folder = tempfile::tempdir().unwrap();
    let error = run(folder.path(), &["stats"]).failure(2);
    assert!(
        error.contains("--database") && error.contains("PILLARBOX_DATABASE_URL"),
        "{error}"
    );
}

#[test]
fn init_writes_a_configuration_that_is_good_and_overwrites_nothing() {
    let folder = tempfile::tempdir().unwrap();
    assert!(
        run(folder.path(), &["init"])
            .success()
            .contains("wrote pillarbox.toml")
    );
    let checked = run(folder.path(), &["config", "check"]).success();
    assert!(
        checked
            .starts_with("pillarbox.toml: ok; 1 destination, 0 routes\ndelivered events are kept for 7 days"),
        "{checked}"
    );

    let file = folder.path().join("pillarbox.toml");
    std::fs::write(&file, "# mine").unwrap();
    let error = run(folder.path(), &["init"]).failure(1);
    assert!(
        error.contains("cannot write pillarbox.toml: it exists") && error.contains("--force"),
        "{error}"
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "# mine");
    run(folder.path(), &["init", "--force"]).success();
    run(folder.path(), &["config", "check"]).success();
}

#[test]
fn init_writes_only_what_is_needed() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut init = vec![
        "init",
        "--database",
        "postgres://u@h/shop",
        "--destination",
        "rabbitmq",
    ];
    let said = run(folder.path(), &init).success();
    assert!(
        said.contains("pillarbox migrate") && said.contains("config check --connect"),
        "{said}"
    );
    let written = std::fs::read_to_string(path("pillarbox.toml")).unwrap();
    assert!(
        written.contains("[database]\nurl = \"postgres://u@h/shop\"\n")
            && written.contains("name = \"rabbitmq\"\ntype = \"rabbitmq\"\nurl = \"amqp://")
            && written.lines().count() < 15,
        "{written}"
    );
    run(folder.path(), &["config", "check"]).success();

    init.extend(["--destination-url", "amqp://shop:hunter2@mq/", "other.toml"]);
    let said = run(folder.path(), &init).success();
    assert!(said.contains("pillarbox run --config other.toml"), "{said}");
    let written = std::fs::read_to_string(path("other.toml")).unwrap();
    assert!(
        written.contains("url = \"amqp://shop:hunter2@mq/\"\nexchange = "),
        "{written}"
    );
    let mode = std::fs::metadata(path("other.toml"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600, "it has a password");

    for destination in ["kafka", "nats", "redis", "webhook", "log"] {
        let file = format!("{destination}.toml");
        let init = run(
            folder.path(),
            &["init", "--config", &file, "--destination", destination],
        );
        if destination == "kafka" && !cfg!(feature = "full") {
            let error = init.failure(2);
            assert!(error.contains("without the kafka sink"), "{error}");
            continue;
        }
        init.success();
        let checked = run(folder.path(), &["--config", &file, "config", "check"]);
        assert_eq!((checked.code, &*checked.stderr), (0, ""), "{destination}");
    }
    for wrong in [
        &["--destination", "rabitmq"][..],
        &["--database", "shop"],
        &["--destination", "log", "--destination-url", "x"],
        &["--destination-url", "x"],
    ] {
        let mut init = vec!["init", "--force"];
        init.extend(wrong);
        assert_eq!(run(folder.path(), &init).code, 2, "{wrong:?}");
    }
}

#[test]
fn migrations_are_printed_without_a_database() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "migrate",
        "--print",
        "--dialect",
        "postgres",
        "--schema",
        "my_outbox",
    ];
    let sql = run(folder.path(), &arguments).success();
    assert!(
        sql.starts_with("begin;") && sql.trim_end().ends_with("commit;"),
        "{sql}"
    );
    assert!(sql.contains("create schema if not exists \"my_outbox\""), "{sql}");
    assert!(!sql.contains("pillarbox.outbox_events"), "{sql}");

    let file = ["migrate", "--print", "--database", "outbox.db"];
    let sql = run(folder.path(), &file).success();
    assert!(
        sql.contains("create table outbox_events") && sql.contains("insert into pillarbox_migrations"),
        "{sql}"
    );
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        0,
        "no file was made"
    );

    let odd = [
        "migrate",
        "--print",
        "--dialect",
        "postgres",
        "--schema",
        "a\"; drop table x; --",
    ];
    run(folder.path(), &odd).failure(2);
}

#[test]
fn the_printed_sql_makes_an_outbox_that_the_binary_knows() {
    let folder = tempfile::tempdir().unwrap();
    let sql = run(folder.path(), &["migrate", "--print", "--dialect", "sqlite"]).success();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        use sqlx::Connection;
        let url = format!("sqlite://{}?mode=rwc", folder.path().join("outbox.db").display());
        let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
            .execute(&mut connection)
            .await
            .unwrap();
        connection.close().await.unwrap();
    });
    let done = run(folder.path(), &["migrate", "--database", "outbox.db", "--json"]).success();
    let done: serde_json::Value = serde_json::from_str(&done).unwrap();
    assert_eq!(done["from"], done["to"], "nothing was left to do: {done}");
    run(folder.path(), &["stats", "--database", "outbox.db"]).success();
}
