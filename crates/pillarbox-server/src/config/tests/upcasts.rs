//! `[[upcast]]` and `[destination.upcast]`.

use super::*;

const STEPS: &str = "[[upcast]]\nevent_type = \"OrderCreated\"\nfrom = 1\nrename = { amount = \"total\" }\n\
    default = { currency = \"EUR\", tags = [1, { a = true }] }\n\
    [[upcast]]\nevent_type = \"OrderCreated\"\nfrom = 2\ndrop = [\"legacy\"]\n";

fn wanting(version: &str, steps: &str) -> String {
    format!("database.url = \"outbox.db\"\n{LOG}[destination.upcast]\n{version}\n{steps}")
}

#[test]
fn a_destination_says_which_version_its_receivers_know() {
    let config = good(&wanting("OrderCreated = 3", STEPS));
    assert!(!config.destinations[0].upcasts.is_empty());
    let shown = config.effective();
    assert_eq!(
        shown["destinations"][0]["upcast"],
        serde_json::json!({"OrderCreated": 3})
    );
    assert_eq!(
        shown["upcast"][0],
        serde_json::json!({
            "event_type": "OrderCreated", "from": 1, "rename": {"amount": "total"},
            "default": {"currency": "EUR", "tags": [1, {"a": true}]}, "drop": [],
        })
    );
}

#[test]
fn a_step_that_no_destination_wants_is_a_warning() {
    let text = with(STEPS);
    let said = warnings(&text, &[]);
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(
        said[0].starts_with("p.toml:2: no destination wants a version of `OrderCreated`"),
        "{said:?}"
    );
    assert!(good(&text).destinations[0].upcasts.is_empty());
}

#[test]
fn chains_are_checked_at_the_start() {
    let step = |keys: &str| format!("[[upcast]]\nevent_type = \"OrderCreated\"\n{keys}\n");
    for (version, steps, error) in [
        (
            "OrderCreated = 4",
            STEPS.to_owned(),
            "p.toml:6: nothing leads from version 3 of `OrderCreated` to version 4, on the way from 1 to 4; add that \
             upcaster",
        ),
        (
            "OrderCreated = 4",
            step("from = 1") + &step("from = 3"),
            "p.toml:6: nothing leads from version 2 of `OrderCreated` to version 3, on the way from 1 to 4; add that \
             upcaster",
        ),
        (
            "OrderPaid = 2",
            STEPS.to_owned(),
            "p.toml:6: no [[upcast]] is for the event type `OrderPaid` (add its steps)",
        ),
        (
            "OrderCreated = 1",
            STEPS.to_owned(),
            "p.toml:6: no [[upcast]] leads to version 1 of `OrderCreated`: the first starts from version 1",
        ),
        (
            "OrderCreated = 2",
            step("from = 1") + &step("from = 1"),
            "p.toml:12: two upcasters lead from version 1 of `OrderCreated`; one of them would never run",
        ),
        (
            "OrderCreated = 3",
            step("from = 1") + &step("from = 2\nnamespace = \"shop\""),
            "p.toml:11: an event of type `OrderCreated` could match two chains (give all its steps the same `namespace` \
             and `topic`, or values that exclude each other)",
        ),
        (
            "OrderCreated = 2",
            step("from = 0"),
            "p.toml:9: `from` is 0; versions count from 1",
        ),
        (
            "OrderCreated = 2",
            step("from = 1\ndefault = { at = 2026-01-01 }"),
            "p.toml:10: `default`: `at` is a time, which JSON does not have (write it as a text)",
        ),
        (
            "OrderCreated = 2",
            step("from = 1\nrenames = {}"),
            "p.toml:10: unknown key `renames` (did you mean `rename`?)",
        ),
        ("OrderCreated = 2", step(""), "p.toml:7: missing key `from`"),
    ] {
        let said = wrong(&wanting(version, &steps));
        assert!(said.contains(error), "expected {error}\nfound {said}");
    }
}

#[tokio::test]
async fn what_is_sent_compressed_cannot_be_upcast() {
    let config = good(
        &wanting("OrderCreated = 3", STEPS).replace("type = \"log\"", "type = \"log\"\ncompressed = true"),
    );
    let to = &config.destinations[0];
    let built = to.sink.build_upcasting(&to.name, &to.message, &to.upcasts).await;
    let error = built.err().expect("they exclude each other").to_string();
    assert_eq!(
        error,
        "destination `log`: `compressed` excludes `upcast`, which has to read the payloads; remove one of them"
    );
}
