//! `migrate --row-security` and `grant api`: what an API sees, and a dispatcher that would see nothing.

use uuid::Uuid;

use crate::command::run;
use crate::fixture::{Fixture, postgres_url};

const LOG: &str = "[[destination]]\nname = \"log\"\ntype = \"log\"\n";
const TENANT: &str = "0190c2a4-8f4e-7c3a-9d51-0f2b6d1c7e5a";

fn role() -> String {
    format!("secured_{}", Uuid::new_v4().simple())
}

#[test]
fn it_is_switched_on_and_off_by_migrate() {
    let fixture = Fixture::postgres(LOG);
    let said = fixture.run(&["migrate", "--row-security"]).success();
    assert!(said.contains("row-level security is on"), "{said}");
    let done = fixture.json(&["migrate", "--row-security=on"]);
    assert_eq!(done[0]["row_security"], true);
    let forced = "select 1 / count(*) from pg_class where oid = 'SCHEMA.outbox_events'::regclass and relforcerowsecurity";
    fixture.sql(forced);
    let role = role();
    fixture.run(&["grant", "api", &role, "--create"]).success();
    let refused = fixture.run(&["migrate", "--row-security=off"]).failure(1);
    assert!(
        refused.contains(&role) && refused.contains("pillarbox revoke api ROLE"),
        "{refused}"
    );
    fixture.run(&["revoke", "api", &role]).success();
    let said = fixture.run(&["migrate", "--row-security=off"]).success();
    assert!(said.contains("row-level security is off"), "{said}");
    fixture.sql(&format!("drop role {role}"));

    let file = Fixture::sqlite(LOG);
    let error = file.run(&["migrate", "--row-security"]).failure(2);
    assert!(error.contains("not supported by SQLite"), "{error}");
}

#[test]
fn the_grant_of_an_api_switches_it_on_and_binds_the_role() {
    let fixture = Fixture::postgres(LOG);
    fixture.run(&["migrate"]).success();
    let (one, all) = (role(), role());
    fixture.run(&["grant", "api", &one, "--create"]).success();
    let said = fixture
        .run(&["grant", "api", &all, "--any-tenant", "--create"])
        .success();
    assert!(said.contains("granted the duty api_any_tenant"), "{said}");
    fixture
        .run(&["enqueue", "shop", "orders", "{}", "--tenant", TENANT])
        .success();
    fixture.run(&["enqueue", "shop", "orders", "{}"]).success();
    for (role, setting, seen) in [
        (&one, "", 0),
        (&one, "set pillarbox.tenant = 'TENANT';", 1),
        (&all, "", 2),
    ] {
        let setting = setting.replace("TENANT", TENANT);
        fixture.sql(&format!(
            "set role {role}; {setting} select 1 / (count(*) = {seen})::int from SCHEMA.outbox_events"
        ));
    }
    assert_eq!(
        fixture.run(&["grant", "api", &one, "--check"]).success(),
        format!("{one}: nothing beyond its duties\n")
    );
    let refused = fixture.run(&["grant", "api", &all]).failure(1);
    assert!(refused.contains("cannot be bound to a tenant"), "{refused}");
    for (duty, role) in [("api", &one), ("api_any_tenant", &all)] {
        fixture.run(&["revoke", duty, role]).success();
        fixture.sql(&format!("drop role {role}"));
    }
}

#[test]
fn a_dispatcher_that_would_see_an_empty_outbox_does_not_start() {
    let fixture = Fixture::postgres(LOG);
    fixture.run(&["migrate", "--row-security"]).success();
    let role = role();
    fixture.run(&["grant", "dispatcher", &role, "--create"]).success();
    fixture.sql("drop policy every_tenant on SCHEMA.outbox_events");
    let schema = fixture.schema().to_owned();
    let url = postgres_url().replace("pillarbox@", &format!("{role}@"));
    fixture.write(&format!(
        "[database]\nurl = \"{url}\"\nschema = \"{schema}\"\n{LOG}"
    ));
    for arguments in [
        &["run", "--listen", "127.0.0.1:0", "--log", "error"][..],
        &["config", "check", "--connect"],
    ] {
        let error = fixture.run(arguments).failure(1);
        let hides = format!("row-level security hides the rows of outbox_events in the schema {schema}");
        let mends = format!("run: pillarbox grant dispatcher {role} --schema {schema}");
        assert!(error.contains(&hides) && error.contains(&mends), "{error}");
    }
    fixture.sql(&format!("drop owned by {role}; drop role {role}"));
}

#[test]
fn the_printed_sql_switches_it_on() {
    let folder = tempfile::tempdir().unwrap();
    let print = ["migrate", "--print", "--dialect", "postgres", "--row-security"];
    let sql = run(folder.path(), &print).success();
    let (script, switch) = sql.split_once("\ncommit;\n").expect("a script");
    assert!(script.starts_with("begin;"), "{script}");
    assert!(switch.contains("create index concurrently"), "{switch}");
    assert!(switch.contains("set_row_security(true);"), "{switch}");
    let print = ["migrate", "--print", "--dialect", "sqlite", "--row-security"];
    run(folder.path(), &print).failure(2);
}
