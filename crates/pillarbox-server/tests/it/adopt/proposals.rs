//! Adopted tables: what `adopt` says of them, and that the daemon works on them as they are.

use std::sync::mpsc::{self, TryRecvError};

use serde_json::Value;
use uuid::Uuid;

use super::seeds::{ALL, ARAP, DEBEZIUM, MODKIT, ORDER_SERVICE, REDIVER, Seed};
use crate::fixture::{Fixture, postgres_url};
use crate::receiver::{Behaviour, Receiver};
use pillarbox_testkit::wait::until_ok_blocking;

const LOG: &str = "[[destination]]\nname = \"log\"\ntype = \"log\"\n";

/// The table of a system, in a schema without an outbox.
fn with_table(seed: Seed, config: &str) -> Fixture {
    let fixture = Fixture::postgres(config);
    fixture.sql("create schema SCHEMA");
    fixture.sql(&seed.table.replace("{schema}", "SCHEMA"));
    fixture
}

/// An outbox with the table of a system beside it, in the same schema.
fn beside_outbox(seed: Seed, config: &str) -> Fixture {
    let fixture = Fixture::postgres(LOG);
    fixture.run(&["migrate"]).success();
    fixture.configure(config);
    fixture.sql(&seed.table.replace("{schema}", "SCHEMA"));
    fixture
}

fn name_of(fixture: &Fixture, seed: Seed) -> String {
    seed.place.replace("{schema}", fixture.schema())
}

fn produce(fixture: &Fixture, seed: Seed) -> Uuid {
    let id = Uuid::now_v7();
    let insert = seed.insert.replace("{schema}", "SCHEMA");
    fixture.sql(&insert.replace("{id}", &id.to_string()));
    id
}

/// What `adopt` says as JSON, without watching for long.
fn proposal(fixture: &Fixture, table: &str) -> Value {
    let url = postgres_url();
    let arguments = ["adopt", "--database", &url, "--table", table, "--watch", "0s"];
    fixture.json(&arguments).remove(0)
}

#[test]
fn each_built_in_layout_is_proposed_for_its_own_table() {
    for seed in ALL {
        for filled in [false, true] {
            let fixture = with_table(seed, LOG);
            if filled {
                produce(&fixture, seed);
            }
            let said = proposal(&fixture, &name_of(&fixture, seed));
            assert_eq!(said["layout"], seed.name, "{said}");
            assert!(
                said["promises"].as_array().is_some_and(|all| all.len() > 4),
                "{said}"
            );
            let toml = said["toml"].as_str().expect("a text");
            assert!(toml.contains(&format!("layout = \"{}\"", seed.name)), "{toml}");
            assert!(
                toml.contains(&format!("table = \"{}\"", name_of(&fixture, seed))),
                "{toml}"
            );
        }
    }
}

#[test]
fn an_index_is_proposed_where_none_has_the_order_of_the_import() {
    for seed in ALL {
        let fixture = with_table(seed, LOG);
        produce(&fixture, seed);
        let table = name_of(&fixture, seed);
        let index = proposal(&fixture, &table)["index"].clone();
        // The indexes of the others begin with what finds waiting rows, followed by the order.
        let is_missing = matches!(seed.name, "arap" | "modkit");
        assert_eq!(index.is_string(), is_missing, "{}: {index}", seed.name);
        let Some(statement) = index.as_str() else { continue };
        // Without waiting for the transactions of other tests.
        fixture.sql(&statement.replace(" concurrently", ""));
        assert_eq!(proposal(&fixture, &table)["index"], Value::Null, "{}", seed.name);
    }
}

#[test]
fn the_proposal_for_a_renamed_table_works() {
    let receiver = Receiver::start(Behaviour::Accepts);
    let fixture = Fixture::postgres(&receiver.destination("mails"));
    fixture.run(&["migrate"]).success();
    fixture.sql(
        "create table SCHEMA.mails (mail_no bigint generated always as identity primary key, data jsonb not null,
           state text not null default 'queued' check (state in ('queued', 'sent', 'failed')), sent_at timestamptz,
           created timestamptz not null default now())",
    );
    let table = format!("{}.mails", fixture.schema());
    let said = proposal(&fixture, &table);
    assert_eq!(said["layout"], Value::Null, "{said}");
    assert_eq!(said["columns"]["id"], "mail_no");
    let toml = said["toml"].as_str().expect("a text");
    let adopt = toml.split("[[destination]]").next().expect("the table first");
    fixture.configure(&format!("{adopt}{}", receiver.destination("mails")));
    let daemon = fixture.ready();
    fixture.sql("insert into SCHEMA.mails (data) values ('{\"to\": 1}')");
    daemon.wait_for_stats("one delivered", |stats| stats["delivered"] == 1);
    assert_eq!(receiver.bodies(), ["{\"to\": 1}"]);
    fixture
        .sql("do $$ begin assert (select state = 'sent' and sent_at is not null from SCHEMA.mails); end $$");
    daemon.stop_blocking();
}

#[test]
fn text_that_is_no_json_is_called_what_it_is() {
    let fixture = beside_outbox(ORDER_SERVICE, LOG);
    produce(&fixture, ORDER_SERVICE);
    let label = "content_type = \"text/plain; charset=utf-8\"";
    let toml = |said: &Value| said["toml"].as_str().expect("a text").to_owned();
    let table = name_of(&fixture, ORDER_SERVICE);
    let said = proposal(&fixture, &table);
    assert!(!toml(&said).contains("content_type"), "{said}");
    produce(&fixture, ORDER_SERVICE);
    fixture.sql("update SCHEMA.outbox set payload = 'OrderCreated;1;2' where id = (select id from SCHEMA.outbox limit 1)");
    let said = proposal(&fixture, &table);
    assert_eq!(said["layout"], "order-service", "it is the same layout otherwise");
    assert!(toml(&said).contains(label), "{said}");
    let warnings = said["warnings"].to_string();
    assert!(
        warnings.contains("1 of 2 sampled rows are not JSON"),
        "{warnings}"
    );
}

#[test]
fn a_schema_may_be_named_apart_and_a_missing_table_gets_a_hint() {
    let fixture = beside_outbox(ORDER_SERVICE, LOG);
    let url = postgres_url();
    let schema = fixture.schema().to_owned();
    let by = |arguments: &[&str]| {
        let mut all = vec!["adopt", "--database", url.as_str(), "--watch", "0s"];
        all.extend(arguments);
        fixture.run(&all)
    };
    let printed = by(&["--schema", &schema, "--table", "outbox"]).success();
    assert!(printed.contains("type = \"kafka\""), "{printed}");
    assert!(printed.contains("key = \"{aggregate_id}\""), "{printed}");
    fixture.sql("alter table SCHEMA.outbox rename to box_SCHEMA");
    let error = by(&["--table", &format!("box_{schema}")]).failure(1);
    assert!(
        error.contains(&format!("there is {schema}.box_{schema}")),
        "{error}"
    );
}

#[test]
fn a_table_that_cannot_be_an_outbox_is_refused_with_the_reasons() {
    let fixture = Fixture::postgres(LOG);
    fixture.sql(
        "create schema if not exists SCHEMA;
         create table SCHEMA.customers (id uuid primary key, email text);
         create table SCHEMA.log (at timestamptz, payload jsonb, processed_at timestamptz);
         create view SCHEMA.seen as select * from SCHEMA.log",
    );
    let url = postgres_url();
    let refused = |table: &str| {
        let table = format!("{}.{table}", fixture.schema());
        let arguments = [
            "adopt",
            "--database",
            &url,
            "--table",
            &table,
            "--watch",
            "0s",
            "--json",
        ];
        let ended = fixture.run(&arguments);
        (ended.stdout.clone(), ended.failure(1))
    };
    let (json, said) = refused("customers");
    assert!(
        said.contains("payload") && said.contains("no column shows the state of a row"),
        "{said}"
    );
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["layout"], Value::Null);
    assert_eq!(json["refused"].as_array().map(Vec::len), Some(2), "{json}");
    let (_, said) = refused("log");
    assert!(said.contains("no column alone identifies a row"), "{said}");
    let (_, said) = refused("seen");
    assert!(said.contains("is not a table"), "{said}");
}

#[test]
fn another_poller_is_noticed() {
    let fixture = &beside_outbox(ARAP, LOG);
    let id = produce(fixture, ARAP);
    let (watching, watched) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while watched.try_recv() == Err(TryRecvError::Empty) {
                // A connection reports what it did when it ends.
                fixture.sql(&format!(
                    "update SCHEMA.outbox_messages set \"RetryCount\" = \"RetryCount\" where \"Id\" = '{id}'"
                ));
            }
        });
        let _watching = watching; // it polls until this is dropped
        let table = name_of(fixture, ARAP);
        let url = postgres_url();
        let arguments = ["adopt", "--database", &url, "--table", &table, "--watch", "2s"];
        // On a busy machine the poller may be too late for a watch.
        until_ok_blocking("it is noticed", || {
            let warnings = fixture.json(&arguments).remove(0)["warnings"].to_string();
            match warnings.contains("stop the other poller first") {
                true => Ok(()),
                false => Err(warnings),
            }
        });
    });
}

#[test]
fn rows_in_flight_elsewhere_are_noticed() {
    for (seed, held) in [
        (MODKIT, "locked_until = now() + interval '1 minute'"),
        (REDIVER, "locked_at = now()"),
    ] {
        let fixture = with_table(seed, LOG);
        produce(&fixture, seed);
        let table = name_of(&fixture, seed);
        let quiet = proposal(&fixture, &table);
        assert!(
            !quiet["warnings"].to_string().contains("stop it first"),
            "{quiet}"
        );
        fixture.sql(&format!("update {table} set status = 'processing', {held}"));
        let said = proposal(&fixture, &table);
        assert!(said["warnings"].to_string().contains("stop it first"), "{said}");
    }
}

#[test]
fn debezium_rows_that_are_deleted_at_once_are_said_to_be_invisible() {
    let fixture = beside_outbox(DEBEZIUM, LOG);
    let said = proposal(&fixture, &name_of(&fixture, DEBEZIUM));
    assert!(said["warnings"].to_string().contains("invisible"), "{said}");
}

#[test]
fn a_daemon_works_on_two_tables_as_they_are_and_says_how_it_goes() {
    let receiver = Receiver::start(Behaviour::Accepts);
    let fixture = beside_outbox(ARAP, "");
    fixture.sql(&MODKIT.table.replace("{schema}", "SCHEMA"));
    fixture.configure(&format!(
        "{}[[adopt]]\nlayout = \"arap\"\ntable = \"{}\"\npoll = \"100ms\"\n\
         [[adopt]]\nlayout = \"modkit\"\ntable = \"{}\"\nnamespaces = [\"mini-chat\"]\n",
        receiver.destination("hook"),
        name_of(&fixture, ARAP),
        name_of(&fixture, MODKIT),
    ));
    let daemon = fixture.ready();
    produce(&fixture, ARAP);
    produce(&fixture, MODKIT);
    fixture.sql(
        "insert into SCHEMA.modkit_outbox_events (id, namespace, topic, payload, status)
         values (gen_random_uuid(), 'x', 'y', '{}', 'parked')",
    );
    let stats = daemon.wait_for_stats("two delivered", |stats| {
        stats["delivered"] == 2 && stats["adopted_tables"][0]["in_progress"] == 0
    });
    assert_eq!(stats["adopted_tables"][0]["name"], "arap", "{stats}");
    assert_eq!(stats["adopted_tables"][1]["unknown"], 1, "{stats}");
    assert_eq!(stats["adopted_tables"][0]["importer"], stats["worker"]["id"]);
    let mut bodies = receiver.bodies();
    bodies.sort();
    assert_eq!(bodies, ["{\"ProposalId\": \"1\"}", "{\"tokens\": 7}"]);
    fixture.sql(
        "do $$ begin assert (select \"ProcessedOnUtc\" is not null from SCHEMA.outbox_messages);
         assert (select count(*) = 1 from SCHEMA.modkit_outbox_events where status = 'delivered'); end $$",
    );
    let counted = fixture.json(&["stats"]).remove(0);
    assert_eq!(counted["adopted_tables"][1]["unknown"], 1, "{counted}");
    let printed = fixture.run(&["stats"]).success();
    assert!(
        printed.contains("ADOPTED") && printed.contains("UNKNOWN STATUS"),
        "{printed}"
    );
    daemon.stop_blocking();
}

#[test]
fn a_retry_by_a_command_that_knows_no_layout_reaches_the_table() {
    let receiver = Receiver::start(Behaviour::RejectsPoison);
    let fixture = beside_outbox(ORDER_SERVICE, "");
    fixture.configure(&format!(
        "{}[[adopt]]\nlayout = \"order-service\"\ntable = \"{}\"\npoll = \"100ms\"\n",
        receiver.destination("hook"),
        name_of(&fixture, ORDER_SERVICE),
    ));
    let daemon = fixture.ready();
    let id = produce_poison(&fixture);
    daemon.wait_for_stats("one dead", |stats| stats["dead"] == 1);
    fixture.sql("do $$ begin assert (select status = 'FAILED' from SCHEMA.outbox); end $$");
    fixture.sql("update SCHEMA.outbox_events set body = '{}'");
    // By its URL alone, so that the command knows no layout.
    let (url, schema) = (postgres_url(), fixture.schema().to_owned());
    let by_url = ["events", "retry", &id, "--database", &url, "--schema", &schema];
    fixture.run(&by_url).success();
    daemon.wait_for_stats("delivered after all", |stats| stats["delivered"] == 1);
    fixture.sql(
        "do $$ begin assert (select status = 'SENT' and error_message is null from SCHEMA.outbox); end $$",
    );
    daemon.stop_blocking();
}

#[test]
fn a_row_that_a_command_deletes_is_not_on_its_way_any_more() {
    let receiver = Receiver::start(Behaviour::IsUnavailable);
    let fixture = beside_outbox(ORDER_SERVICE, "");
    fixture.configure(&format!(
        "{}[[adopt]]\nlayout = \"order-service\"\ntable = \"{}\"\npoll = \"100ms\"\n\
         [adopt.retry]\nbase = \"1h\"\nmax = \"1h\"\n",
        receiver.destination("hook"),
        name_of(&fixture, ORDER_SERVICE),
    ));
    let daemon = fixture.ready();
    let id = produce(&fixture, ORDER_SERVICE).to_string();
    daemon.wait_for_stats("one on its way", |stats| {
        stats["adopted_tables"][0]["in_progress"] == 1
    });
    let (url, schema) = (postgres_url(), fixture.schema().to_owned());
    let by_url = [
        "events",
        "delete",
        &id,
        "--yes",
        "--database",
        &url,
        "--schema",
        &schema,
    ];
    until_ok_blocking("no worker has it in flight, and it is deleted", || {
        let finished = fixture.run(&by_url);
        if finished.code == 0 {
            Ok(())
        } else {
            Err(format!("{finished:?}"))
        }
    });
    daemon.wait_for_stats("none on its way", |stats| {
        stats["adopted_tables"][0]["in_progress"] == 0
            && stats["adopted_tables"][0]["pending_write_backs"] == 0
    });
    daemon.stop_blocking();
}

/// A row that the receiver will never accept.
fn produce_poison(fixture: &Fixture) -> String {
    let id = Uuid::now_v7().to_string();
    let insert = ORDER_SERVICE
        .insert
        .replace("{schema}", "SCHEMA")
        .replace("{id}", &id);
    fixture.sql(&insert.replace("\"b\": 1", "\"b\": \"poison\""));
    id
}

#[test]
fn a_wrong_column_ends_the_start_with_its_line_and_the_nearest_name() {
    let fixture = beside_outbox(ORDER_SERVICE, "");
    let config = format!(
        "{LOG}[[adopt]]\nlayout = \"order-service\"\ntable = \"{}\"\nerror = \"eror_message\"\n",
        name_of(&fixture, ORDER_SERVICE)
    );
    fixture.configure(&config);
    let expected = "pillarbox.toml:10: table `order-service`: `error` names the column \"eror_message\"";
    let said = fixture.run(&["run", "--migrate", "--listen", "127.0.0.1:0"]);
    assert_eq!(said.code, 2, "{said:?}");
    let said = said.stderr;
    assert!(
        said.contains(expected) && said.contains("did you mean \"error_message\"?"),
        "{said}"
    );
    let checked = fixture.run(&["config", "check"]);
    assert_eq!(checked.code, 0, "it needs a connection: {checked:?}");
    let checked = fixture.run(&["config", "check", "--connect"]);
    assert_eq!(checked.code, 1, "{checked:?}");
    assert!(
        checked.stderr.contains("did you mean \"error_message\"?"),
        "{checked:?}"
    );
}

#[test]
fn a_role_that_may_not_work_on_a_table_hears_so_when_it_asks() {
    let fixture = beside_outbox(ORDER_SERVICE, LOG);
    fixture.run(&["migrate"]).success();
    let role = format!("dispatcher_{}", Uuid::new_v4().simple());
    fixture.run(&["grant", "dispatcher", &role, "--create"]).success();
    let table = name_of(&fixture, ORDER_SERVICE);
    fixture.write(&format!(
        "[database]\nurl = \"{}\"\nschema = \"{}\"\n{LOG}[[adopt]]\nlayout = \"order-service\"\ntable = \"{table}\"\n",
        postgres_url().replacen("pillarbox@", &format!("{role}@"), 1),
        fixture.schema(),
    ));
    let check = || fixture.run(&["config", "check", "--connect"]);

    let refused = check();
    assert_eq!(refused.code, 1, "{refused:?}");
    let (_, grants) = refused
        .stderr
        .split_once("let the owners run: ")
        .expect("what to do");
    let (grants, _) = grants.split_once("; see docs").expect("where to read more");
    assert!(grants.starts_with("grant select, update on "), "{grants}");

    fixture.sql(grants);
    let allowed = check();
    assert_eq!(allowed.code, 0, "what it asked for is enough: {allowed:?}");
    fixture.sql(&format!("drop owned by {role}; drop role {role}"));
}

#[test]
fn failed_imports_are_retried_at_once_by_a_command() {
    let receiver = Receiver::start(Behaviour::Accepts);
    let fixture = beside_outbox(ORDER_SERVICE, "");
    fixture.configure(&format!(
        "{}[[adopt]]\nlayout = \"order-service\"\ntable = \"{}\"\npoll = \"100ms\"\n",
        receiver.destination("hook"),
        name_of(&fixture, ORDER_SERVICE),
    ));
    fixture.run(&["migrate"]).success();
    let error = fixture.run(&["adopt", "retry", "order-service"]).failure(1);
    assert!(
        error.contains("adopted table `order-service` not found (no worker has imported"),
        "{error}"
    );
    fixture.sql(
        "create function SCHEMA.refuse() returns trigger language plpgsql as $$
           begin raise exception 'the audit log is full'; end $$;
         create trigger refuse before insert on SCHEMA.outbox_events for each row execute function SCHEMA.refuse()",
    );
    let ids: Vec<String> = (0..3)
        .map(|_| produce(&fixture, ORDER_SERVICE).to_string())
        .collect();
    let daemon = fixture.ready();
    let not_imported = |rows: u64| move |stats: &Value| stats["adopted_tables"][0]["not_imported"] == rows;
    daemon.wait_for_stats("three failed", not_imported(3));
    fixture.sql("drop trigger refuse on SCHEMA.outbox_events");

    let error = fixture.run(&["adopt", "retry", "another"]).failure(1);
    assert!(
        error.contains("adopted table `another` not found (adopted: `order-service`)"),
        "{error}"
    );
    let one = fixture.run(&["adopt", "retry", "order-service", "--id", &ids[1], "--id", "7"]);
    assert_eq!(one.stdout, format!("{} retried\n", ids[1]));
    let error = one.failure(1);
    assert!(error.contains("not retried: 7"), "{error}");
    daemon.wait_for_stats("one delivered", |stats| stats["delivered"] == 1);
    let said = fixture.json(&["adopt", "retry", "order-service"]).remove(0);
    assert_eq!(said["retried"], 2, "{said}");
    daemon.wait_for_stats("all delivered", |stats| stats["delivered"] == 3);
    daemon.wait_for_stats("none failed", not_imported(0));
    daemon.stop_blocking();
}
