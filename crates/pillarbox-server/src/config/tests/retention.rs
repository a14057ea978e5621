//! `[retention]`

use std::time::Duration;

use pillarbox_store::retention::{Keep, Retention};

use super::{good, warnings, with, wrong};
use crate::config;

fn days(count: u64) -> Option<Duration> {
    Some(Duration::from_secs(count * 24 * 60 * 60))
}

#[test]
fn delivered_events_are_kept_for_a_week_and_dead_ones_for_a_month() {
    for text in ["", "[retention]"] {
        let dispatch = good(&with(text)).dispatch;
        assert_eq!(dispatch.retention, Retention::usual());
        assert_eq!(
            (dispatch.prune_interval, dispatch.prune_batch),
            (Duration::from_secs(60), 1000)
        );
    }
}

#[test]
fn a_namespace_takes_what_it_does_not_say_from_the_others() {
    let config = good(&with(
        "[retention]\ndelivered = \"2 days\"\nsagas = \"never\"\ninbox = \"90 days\"\ninterval = \"5m\"\nbatch = 10\n\
         [[retention.namespace]]\nname = \"audit\"\ndelivered = \"never\"",
    ));
    let retention = &config.dispatch.retention;
    assert_eq!(
        retention.of("shop"),
        Keep {
            delivered: days(2),
            dead: days(30)
        }
    );
    assert_eq!(
        retention.of("audit"),
        Keep {
            delivered: None,
            dead: days(30)
        }
    );
    assert_eq!((retention.sagas, retention.inbox), (None, days(90)));
    assert_eq!(
        config.effective()["retention"],
        serde_json::json!({
            "delivered": "2 days", "dead": "30 days", "sagas": "never", "inbox": "90 days", "archive": null, "interval": "5m", "batch": 10,
            "namespace": [{ "name": "audit", "delivered": "never", "dead": "30 days" }],
        })
    );
}

#[test]
fn what_cannot_be_meant_is_rejected_with_its_line() {
    for (text, expected) in [
        (
            "[retention]\ndead = \"0s\"",
            "p.toml:3: `retention.dead` must be longer than 0s: dead events would be gone before an operator saw them (use \"never\" to \
             keep them)",
        ),
        (
            "[retention]\ndelivered = \"forever\"",
            "p.toml:3: `retention.delivered`: expected a duration such as \"7 days\" or \"12h\", or \"never\" to delete nothing, found \
             string \"forever\"",
        ),
        (
            "[retention]\ninterval = \"0s\"",
            "p.toml:3: `retention.interval` must not be zero: the pruner would never rest",
        ),
        (
            "[retention]\narchive = \"old\"\ndelivered = \"0s\"",
            "p.toml:3: `retention.archive` and `delivered = \"0s\"` exclude each other: what is deleted with its settlement is not \
             archived (use `delivered = \"1h\"`, or remove `archive`)",
        ),
        (
            "[[retention.namespace]]\nname = \"a\"\n[[retention.namespace]]\nname = \"a\"",
            "p.toml:5: there are two tables for the namespace `a` (remove one)",
        ),
    ] {
        assert_eq!(wrong(&with(text)), expected);
    }
}

#[test]
fn a_short_retention_says_what_it_does_to_dedupe_keys() {
    let short = warnings(&with("[retention]\ndelivered = \"1h\""), &[]);
    assert_eq!(
        short,
        [
            "p.toml:3: `retention.delivered` is 1h: a dedupe key detects duplicates for only that long after the delivery (use at \
             least as long as producers retry)"
        ]
    );
    assert_eq!(
        warnings(&with("[retention]\ndelivered = \"0s\""), &[]),
        [""; 0],
        "what is needed stays for a week"
    );
}

#[test]
fn copies_of_adopted_rows_may_be_kept_for_a_shorter_time() {
    let keep = |age: &str| {
        let text = format!("[[adopt]]\nlayout = \"arap\"\nkeep_copies = \"{age}\"");
        let config = config::read(&format!(
            "database.url = \"postgres://localhost/shop\"\n[[destination]]\nname = \"log\"\ntype = \"log\"\n{text}"
        ));
        config.expect("valid").dispatch.retention.of("arap").delivered
    };
    assert_eq!(keep("1h"), Some(Duration::from_secs(3600)));
    assert_eq!(keep("90 days"), days(7), "it is never longer");
}
