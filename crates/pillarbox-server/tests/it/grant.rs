//! `pillarbox grant`: roles that may only enqueue, or only deliver.

use uuid::Uuid;

use crate::binary::run;
use crate::place::Place;

const LOG: &str = "[[destination]]\nname = \"log\"\ntype = \"log\"\n";

fn role() -> String {
    format!("grant_{}", Uuid::new_v4().simple())
}

#[test]
fn a_role_that_was_created_may_enqueue_at_once() {
    let place = Place::postgres(LOG);
    place.run(&["migrate"]).good();
    let role = role();
    let said = place.run(&["grant", "producer", &role, "--create"]).good();
    assert!(
        said.contains(&format!("{role}: created, granted the duty producer")),
        "{said}"
    );
    place.sql(&format!(
        "set role {role}; select * from SCHEMA.enqueue('shop', 'orders')"
    ));
    assert_eq!(place.json(&["stats"])[0]["pending"], 1);

    let said = place.json(&["grant", "dispatcher", &role, "--create"]);
    let schema = place.schema();
    let expected =
        serde_json::json!({"role": role, "duty": "dispatcher", "schema": schema, "created": false});
    assert_eq!(said, [expected]);
    place.sql(&format!("drop owned by {role}; drop role {role}"));
}

#[test]
fn the_printed_sql_grants_the_same() {
    let place = Place::postgres(LOG);
    place.run(&["migrate"]).good();
    let role = role();
    let print = [
        "grant",
        "producer",
        &role,
        "--create",
        "--print",
        "--schema",
        place.schema(),
    ];
    let sql = run(place.path(), &print).good();
    assert!(
        sql.starts_with(&format!("create role \"{role}\" login;")),
        "{sql}"
    );
    place.sql(&sql);
    place.sql(&format!(
        "set role {role}; select * from SCHEMA.enqueue('shop', 'orders')"
    ));
    place.sql(&format!("drop owned by {role}; drop role {role}"));
}

#[test]
fn what_cannot_be_granted_says_why() {
    let place = Place::postgres(LOG);
    let error = place.run(&["grant", "producer", "shop"]).failed(1);
    assert!(error.contains("run `pillarbox migrate`"), "{error}");
    place.run(&["migrate"]).good();
    let error = place.run(&["grant", "producer", "nobody_of_this_name"]).failed(1);
    assert!(error.contains("does not exist"), "{error}");
    let error = place.run(&["grant", "producer", ""]).failed(1);
    assert!(error.contains("is invalid (use 1 to 63 bytes)"), "{error}");

    let file = Place::sqlite(LOG);
    file.run(&["migrate"]).good();
    let error = file.run(&["grant", "producer", "shop"]).failed(2);
    assert!(error.contains("SQLite has no roles"), "{error}");
}
