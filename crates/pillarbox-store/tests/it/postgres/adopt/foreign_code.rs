//! Code of other roles that would run with the dispatcher's rights.

use pillarbox_store::stores::postgres::adopt::foreign_code;
use uuid::Uuid;

use super::harness::Adopted;
use super::seeds::ORDER_SERVICE;

async fn warnings(adopted: &Adopted, trusted: &[String]) -> Vec<String> {
    let store = &adopted.outbox.store;
    let mut connection = store.connection().await.expect("connects");
    let found = foreign_code(&mut connection, &adopted.table().layout, store.schema(), trusted).await;
    found.expect("reads")
}

#[tokio::test]
async fn code_of_other_roles_that_a_table_would_run_is_found() {
    let adopted = Adopted::new(ORDER_SERVICE).await;
    assert_eq!(warnings(&adopted, &[]).await, Vec::<String>::new());
    let role = format!("r_{}", Uuid::new_v4().simple());
    adopted
        .run(&format!(
            "create role {role};
             create function {{schema}}.spy() returns trigger language plpgsql as 'begin return new; end';
             create function {{schema}}.own() returns trigger language plpgsql as 'begin return new; end';
             create function {{schema}}.copied(text) returns text language sql immutable as 'select $1';
             create function {{schema}}.sound(text) returns boolean language sql immutable as 'select true';
             create domain {{schema}}.word as text check ({{schema}}.sound(value));
             create trigger spy before update on {{schema}}.outbox for each row execute function {{schema}}.spy();
             create trigger own before update on {{schema}}.outbox for each row execute function {{schema}}.own();
             alter table {{schema}}.outbox
               add column copy text generated always as ({{schema}}.copied(status)) stored,
               add column word {{schema}}.word;
             create index by_copy on {{schema}}.outbox ({{schema}}.copied(status));
             alter function {{schema}}.spy() owner to {role};
             alter function {{schema}}.copied(text) owner to {role};
             alter function {{schema}}.sound(text) owner to {role}"
        ))
        .await;
    let said = warnings(&adopted, &[]).await;
    let expected = [
        "a default or generated column calls",
        "the check word_check calls",
        "the index by_copy calls",
        "the trigger spy calls",
    ];
    assert_eq!(said.len(), expected.len(), "{said:#?}");
    for (said, expected) in said.iter().zip(expected) {
        assert!(
            said.starts_with(expected) && said.ends_with(&format!("of the role {role}")),
            "{said}"
        );
    }
    adopted
        .run(&format!("alter table {{schema}}.outbox owner to {role}"))
        .await;
    let said = warnings(&adopted, &[]).await;
    let owner = format!("it belongs to the role {role}, which can add triggers and functions to it");
    assert!(said.contains(&owner), "{said:#?}");
    let trusted = [role.clone()];
    assert_eq!(warnings(&adopted, &trusted).await, Vec::<String>::new());
    adopted.drop_schemas().await;
    let fixture = &adopted.outbox;
    sqlx::query(sqlx::AssertSqlSafe(format!("drop role {role}")))
        .execute(&fixture.pool)
        .await
        .expect("nothing is left of it");
}
