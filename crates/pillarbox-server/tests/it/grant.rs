//! `pillarbox grant` and `revoke`: roles that may only enqueue, or only deliver.

use uuid::Uuid;

use crate::command::run;
use crate::daemon::Daemon;
use crate::fixture::{Fixture, postgres_url};

const LOG: &str = "[[destination]]\nname = \"log\"\ntype = \"log\"\n";

fn role() -> String {
    format!("grant_{}", Uuid::new_v4().simple())
}

#[test]
fn a_role_that_was_created_may_enqueue_at_once() {
    let fixture = Fixture::postgres(LOG);
    fixture.run(&["migrate"]).success();
    let role = role();
    let said = fixture
        .run(&["grant", "producer", &role, "--namespace", "shop", "--create"])
        .success();
    assert!(
        said.contains(&format!("{role}: created, granted the duty producer")),
        "{said}"
    );
    fixture.sql(&format!(
        "set role {role}; select * from SCHEMA.enqueue('shop', 'orders')"
    ));
    assert_eq!(fixture.json(&["stats"])[0]["pending"], 1);

    let said = fixture.json(&["grant", "dispatcher", &role, "--create"]);
    let schema = fixture.schema();
    let expected =
        serde_json::json!({"role": role, "duty": "dispatcher", "schema": schema, "created": false});
    assert_eq!(said, [expected]);
    fixture.sql(&format!("drop owned by {role}; drop role {role}"));
}

#[test]
fn a_pattern_is_no_name_that_a_role_can_be_bound_to() {
    let fixture = Fixture::postgres(LOG);
    let said = fixture
        .run(&["grant", "producer", "shop", "--namespace", "shop.*"])
        .failure(2);
    assert!(said.contains("patterns are not supported"), "{said}");
}

#[test]
fn a_dispatcher_that_may_not_delete_does_not_start() {
    let fixture = Fixture::postgres(LOG);
    fixture.run(&["migrate"]).success();
    let role = role();
    fixture.run(&["grant", "dispatcher", &role, "--create"]).success();
    let url = postgres_url().replace("pillarbox@", &format!("{role}@"));
    let schema = fixture.schema();
    fixture.sql(&format!("revoke delete on SCHEMA.outbox_events from {role}"));
    fixture.write(&format!(
        "[database]\nurl = \"{url}\"\nschema = \"{schema}\"\n{LOG}"
    ));
    let lacks = format!(
        "role \"{role}\" lacks permissions of a dispatcher in the schema {schema}: delete on outbox_events"
    );
    let mends = format!("run: pillarbox grant dispatcher {role} --schema {schema}");
    for arguments in [
        &["run", "--listen", "127.0.0.1:0", "--log", "error"][..],
        &["config", "check", "--connect"],
    ] {
        let error = fixture.run(arguments).failure(1);
        assert!(
            error.contains(&lacks) && error.contains(&mends),
            "{arguments:?}: {error}"
        );
    }
    fixture.sql(&format!("drop owned by {role}; drop role {role}"));
}

#[test]
fn the_printed_sql_grants_the_same_in_the_configured_schema() {
    let fixture = Fixture::postgres(LOG);
    fixture.run(&["migrate"]).success();
    let role = role();
    let print = [
        "grant",
        "producer",
        &role,
        "--namespace",
        "shop",
        "--create",
        "--print",
        "--reason",
        "it's \\ reviewed",
    ];
    let sql = run(fixture.path(), &print).success();
    assert!(
        sql.starts_with(&format!("begin;\ncreate role \"{role}\" login;")),
        "{sql}"
    );
    fixture.sql(&sql);
    let line = &fixture.json(&["audit", "ls", "--action", "grant"])[0];
    assert_eq!(
        (&line["objects"][0], &line["reason"]),
        (&role.as_str().into(), &"it's \\ reviewed".into())
    );
    assert_eq!(line["after"]["namespaces"], serde_json::json!(["shop"]));
    fixture.sql(&format!(
        "set role {role}; select * from SCHEMA.enqueue('shop', 'orders')"
    ));
    fixture.sql(&format!("drop owned by {role}; drop role {role}"));
}

#[test]
fn an_impossible_grant_has_an_error() {
    let fixture = Fixture::postgres(LOG);
    let error = fixture.run(&["grant", "writer", "shop"]).failure(1);
    assert!(error.contains("run `pillarbox migrate`"), "{error}");
    fixture.run(&["migrate"]).success();
    let error = fixture.run(&["grant", "writer", "no_such_role"]).failure(1);
    assert!(
        error.contains("role \"no_such_role\" does not exist (create it first, or use --create)"),
        "{error}"
    );
    let error = fixture.run(&["grant", "writer", ""]).failure(1);
    assert!(error.contains("is invalid (use 1 to 63 bytes)"), "{error}");

    let file = Fixture::sqlite(LOG);
    file.run(&["migrate"]).success();
    let error = file.run(&["grant", "writer", "shop"]).failure(2);
    assert!(error.contains("SQLite has no roles"), "{error}");
}

#[test]
fn a_role_that_does_not_own_the_outbox_reads_who_does() {
    let fixture = Fixture::postgres(LOG);
    fixture.run(&["migrate"]).success();
    let role = role();
    let owner_is_super = fixture.run(&["grant", "producer", &role, "--any-namespace", "--create"]);
    assert!(
        owner_is_super.stderr.contains("a superuser that may log in"),
        "{owner_is_super:?}"
    );
    let url = postgres_url().replace("pillarbox@", &format!("{role}@"));
    for arguments in [
        &["grant", "writer", &role][..],
        &["grant", "writer", &role, "--check"],
        &["revoke", "producer", &role],
        &["quota", "set", "--role", &role, "--max-pending", "1"],
        &["quota", "rm", "--role", &role],
    ] {
        let chosen = [arguments, &["--database", &url, "--schema", fixture.schema()]].concat();
        let error = fixture.run(&chosen).failure(1);
        let says =
            format!("belongs to the role \"pillarbox\", and this is \"{role}\" (run it as \"pillarbox\"");
        assert!(error.contains(&says), "{arguments:?}: {error}");
    }
    fixture.sql(&format!("drop owned by {role}; drop role {role}"));
}

#[test]
fn a_name_that_cannot_be_is_the_error_of_the_caller_and_not_of_the_database() {
    let fixture = Fixture::postgres(LOG);
    let error = fixture.run(&["stats", "--schema", "Shop"]).failure(2);
    assert!(error.contains("--schema: \"Shop\" cannot be the name"), "{error}");
    let url = format!("{}?sslmode=ful", postgres_url());
    let error = fixture.run(&["stats", "--database", &url]).failure(2);
    assert!(
        error.contains("invalid database URL: `sslmode` is none of"),
        "{error}"
    );
    assert!(!error.contains("answered"), "{error}");
}

#[test]
fn a_grant_says_what_it_is_bound_to() {
    let folder = tempfile::tempdir().unwrap();
    for (duty, missing) in [
        ("producer", "--namespace"),
        ("consumer", "--name"),
        ("orchestrator", "--saga"),
    ] {
        let error = run(folder.path(), &["grant", duty, "shop", "--print"]).failure(2);
        assert!(error.contains(missing), "{error}");
    }
}

#[test]
fn a_check_lists_what_is_beyond_a_duty_and_a_revoke_takes_the_duty() {
    let fixture = Fixture::postgres(LOG);
    fixture.run(&["migrate"]).success();
    let role = role();
    fixture
        .run(&["grant", "consumer", &role, "--name", "letters", "--create"])
        .success();
    let check = ["grant", "consumer", &role, "--check"];
    assert_eq!(
        fixture.run(&check).success(),
        format!("{role}: nothing beyond its duties\n")
    );
    fixture.sql(&format!("grant delete on SCHEMA.outbox_events to {role}"));
    let beyond = fixture.run(&check);
    assert_eq!(
        (beyond.code, &*beyond.stdout),
        (1, "delete on outbox_events\n"),
        "{beyond:?}"
    );
    fixture.sql(&format!("revoke delete on SCHEMA.outbox_events from {role}"));
    let revoke = ["revoke", "consumer", &role, "--reason", "it moved"];
    let said = fixture.run(&revoke).success();
    assert!(said.contains("revoked the duty consumer"), "{said}");
    let error = fixture.run(&revoke).failure(1);
    assert!(error.contains("does not have the duty consumer"), "{error}");
    let check = fixture.run(&check);
    assert!(
        check.code == 0
            && check
                .stderr
                .contains("lacks what the duty consumer needs: its row of role_bounds and 6 more"),
        "{check:?}"
    );
    let lines = fixture.json(&["audit", "ls", "--object", &role]);
    let seen: Vec<_> = lines
        .iter()
        .map(|line| (&line["action"], &line["reason"]))
        .collect();
    let (null, text) = (serde_json::Value::Null, serde_json::Value::from);
    assert_eq!(
        seen,
        [(&text("revoke"), &text("it moved")), (&text("grant"), &null)]
    );
    fixture.sql(&format!(
        "select 1 / (not has_schema_privilege('{role}', 'SCHEMA', 'usage'))::int; drop role {role}"
    ));
}

const TENANT: &str = "0190c2a4-8f4e-7c3a-9d51-0f2b6d1c7e5a";
const OTHER_TENANT: &str = "0190c2a4-8f4e-7c3a-9d51-0f2b6d1c7e5b";

/// What is special about an event: the arguments of `enqueue`, and whether a bound producer may enqueue it.
fn facts() -> Vec<(Vec<String>, bool)> {
    let event = |namespace: &str, options: &[&str]| {
        let all = [&["enqueue", namespace, "orders", "{}"], options].concat();
        all.into_iter().map(str::to_owned).collect::<Vec<String>>()
    };
    let (own_key, tomorrow) = (format!("{TENANT}/1"), "+10m");
    vec![
        (event("shop", &["--tenant", TENANT]), true),
        (event("billing", &["--tenant", TENANT]), false),
        (event("shop", &["--tenant", OTHER_TENANT]), false),
        (event("shop", &[]), false),
        (
            event("shop", &["--tenant", TENANT, "--destination", "mail"]),
            true,
        ),
        (
            event("shop", &["--tenant", TENANT, "--destination", "ledger"]),
            false,
        ),
        (
            event("shop", &["--tenant", TENANT, "--dedupe-key", &own_key]),
            true,
        ),
        (event("billing", &["--dedupe-key", "invoice-1"]), false),
        (event("shop", &["--tenant", TENANT, "--key", "k"]), true),
        (event("shop", &["--tenant", TENANT, "--at", tomorrow]), true),
    ]
}

/// Each duty × what an event has, by the command line.
#[test]
fn a_role_enqueues_by_the_command_line_what_its_duty_allows() {
    let fixture = Fixture::postgres(LOG);
    fixture.run(&["migrate"]).success();
    let folder = tempfile::tempdir().unwrap();
    for (duty, bounds) in [
        (
            "producer",
            &["--namespace", "shop", "--tenant", TENANT, "--destination", "mail"][..],
        ),
        ("writer", &[]),
        ("consumer", &["--any-name"]),
        ("orchestrator", &["--any-saga"]),
        ("dispatcher", &[]),
    ] {
        let role = role();
        let grant = [&["grant", duty, &role, "--create"], bounds].concat();
        fixture.run(&grant).success();
        let url = postgres_url().replace("pillarbox@", &format!("{role}@"));
        for (mut arguments, in_bounds) in facts() {
            arguments.extend(["--database", &url, "--schema", fixture.schema()].map(str::to_owned));
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let done = run(folder.path(), &arguments);
            if duty == "writer" || (duty == "producer" && in_bounds) {
                done.success();
            } else {
                let error = done.failure(1);
                assert!(
                    error.contains("(42501)") && error.contains("grant writer"),
                    "{duty}: {error}"
                );
            }
        }
        fixture.sql(&format!("drop owned by {role}; drop role {role}"));
    }
}

/// No process logs in as the owner here.
#[test]
fn a_daemon_delivers_as_dispatcher_what_a_producer_and_a_writer_enqueue() {
    let fixture = Fixture::postgres(LOG);
    fixture.run(&["migrate"]).success();
    let superuser = fixture.daemon(&[]);
    superuser.wait_until_ready();
    superuser.wait_for_log("the database role is not confined to its duty");
    superuser.stop_blocking();

    let roles = [role(), role(), role()];
    let [producer, writer, dispatcher] = &roles;
    fixture
        .run(&["grant", "producer", producer, "--namespace", "shop", "--create"])
        .success();
    fixture.run(&["grant", "writer", writer, "--create"]).success();
    fixture
        .run(&["grant", "dispatcher", dispatcher, "--create"])
        .success();
    let url = |role: &str| postgres_url().replace("pillarbox@", &format!("{role}@"));
    let schema = fixture.schema();
    let mut command = fixture.command(&[]);
    command.env("PILLARBOX_DATABASE_URL", url(dispatcher));
    let daemon = Daemon::start(command);
    daemon.wait_until_ready();
    for role in [producer, writer] {
        fixture
            .run(&[
                "enqueue",
                "shop",
                "orders",
                "{}",
                "--database",
                &url(role),
                "--schema",
                schema,
            ])
            .success();
    }
    daemon.wait_for_stats("both are delivered", |stats| stats["delivered"] == 2);
    assert!(!daemon.log().contains("superuser"), "{}", daemon.log());
    daemon.stop_blocking();
    for role in roles {
        fixture.sql(&format!("drop owned by {role}; drop role {role}"));
    }
}

#[test]
fn an_outbox_is_given_to_a_role_that_cannot_log_in() {
    let fixture = Fixture::postgres(LOG);
    let role = role();
    let error = fixture.run(&["migrate", "--owner", &role]).failure(1);
    assert!(
        error.contains(&format!("create role \"{role}\" nologin")),
        "{error}"
    );
    fixture.sql(&format!("create role {role} nologin"));
    fixture.run(&["migrate", "--owner", &role]).success();
    fixture.sql(&format!(
        "select 1 / (count(*) = 0)::int from pg_class where relnamespace = 'SCHEMA'::regnamespace and relowner <> '{role}'::regrole"
    ));
    fixture.sql(&format!("drop owned by {role}; drop role {role}"));

    let file = Fixture::sqlite(LOG);
    let error = file.run(&["migrate", "--owner", &role]).failure(2);
    assert!(error.contains("not supported by SQLite"), "{error}");
}
