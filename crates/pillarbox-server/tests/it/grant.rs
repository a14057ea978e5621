//! `pillarbox grant`: roles that may only enqueue, or only deliver.

use uuid::Uuid;

use crate::command::run;
use crate::fixture::Fixture;

const LOG: &str = "[[destination]]\nname = \"log\"\ntype = \"log\"\n";

fn role() -> String {
    format!("grant_{}", Uuid::new_v4().simple())
}

#[test]
fn a_role_that_was_created_may_enqueue_at_once() {
    let fixture = Fixture::postgres(LOG);
    fixture.run(&["migrate"]).success();
    let role = role();
    let said = fixture.run(&["grant", "producer", &role, "--create"]).success();
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
fn the_printed_sql_grants_the_same() {
    let fixture = Fixture::postgres(LOG);
    fixture.run(&["migrate"]).success();
    let role = role();
    let print = [
        "grant",
        "producer",
        &role,
        "--create",
        "--print",
        "--schema",
        fixture.schema(),
    ];
    let sql = run(fixture.path(), &print).success();
    assert!(
        sql.starts_with(&format!("create role \"{role}\" login;")),
        "{sql}"
    );
    fixture.sql(&sql);
    fixture.sql(&format!(
        "set role {role}; select * from SCHEMA.enqueue('shop', 'orders')"
    ));
    fixture.sql(&format!("drop owned by {role}; drop role {role}"));
}

#[test]
fn an_impossible_grant_has_an_error() {
    let fixture = Fixture::postgres(LOG);
    let error = fixture.run(&["grant", "producer", "shop"]).failure(1);
    assert!(error.contains("run `pillarbox migrate`"), "{error}");
    fixture.run(&["migrate"]).success();
    let error = fixture.run(&["grant", "producer", "no_such_role"]).failure(1);
    assert!(error.contains("does not exist"), "{error}");
    let error = fixture.run(&["grant", "producer", ""]).failure(1);
    assert!(error.contains("is invalid (use 1 to 63 bytes)"), "{error}");

    let file = Fixture::sqlite(LOG);
    file.run(&["migrate"]).success();
    let error = file.run(&["grant", "producer", "shop"]).failure(2);
    assert!(error.contains("SQLite has no roles"), "{error}");
}
