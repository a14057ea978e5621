//! Logs as JSON: every line on standard error is one object, whatever happens.

use std::collections::BTreeSet;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::command::{Finished, pillarbox, run};
use crate::fixture::Fixture;
use crate::receiver::{Behaviour, Receiver};

/// The values of these lines, each an object without a repeated key.
fn objects(text: &str) -> Vec<Value> {
    let object = |line: &str| {
        let keys = keys(line);
        let unique: BTreeSet<&String> = keys.iter().collect();
        assert_eq!(unique.len(), keys.len(), "a key is repeated: {line}");
        serde_json::from_str(line).unwrap()
    };
    text.lines().map(object).collect()
}

/// The keys of one object, also repeated ones.
fn keys(line: &str) -> Vec<String> {
    struct Keys(Vec<String>);
    impl<'de> serde::Deserialize<'de> for Keys {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Reader;
            impl<'de> serde::de::Visitor<'de> for Reader {
                type Value = Keys;

                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("an object")
                }

                fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Keys, A::Error> {
                    let mut keys = Vec::new();
                    while let Some((key, _)) = map.next_entry::<String, Box<RawValue>>()? {
                        keys.push(key);
                    }
                    Ok(Keys(keys))
                }
            }
            deserializer.deserialize_map(Reader)
        }
    }
    let Keys(keys) = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    keys
}

const LOG: &str = "[[destination]]\nname = \"log\"\ntype = \"log\"\n";

#[test]
fn every_line_of_a_daemon_is_an_object_with_unique_keys() {
    let fixture = Fixture::sqlite(LOG);
    let daemon = fixture.daemon(&["--migrate", "--log-format", "json", "--log", "trace"]);
    daemon.wait_until_ready();
    fixture.enqueue(&["shop", "orders", "1"]);
    daemon.wait_for_stats("one delivered", |stats| stats["delivered"] == 1);
    let lines = objects(&daemon.stop_blocking());
    assert!(
        lines
            .iter()
            .all(|line| line["message"].is_string() && line["level"].is_string())
    );
    let listening = lines.iter().find(|line| line["message"] == "listening");
    assert!(listening.is_some_and(|line| line["url"].is_string()), "{lines:?}");
}

#[test]
fn failures_are_logged_without_secrets() {
    let receiver = Receiver::start(Behaviour::IsUnavailable);
    let fixture = Fixture::sqlite(&format!(
        "[retry]\nbase = \"10ms\"\nmax = \"20ms\"\nmax_attempts = 3\n\
         [[destination]]\nname = \"partner\"\ntype = \"webhook\"\nurl = \"{}?token=canary-url\"\n\
         bearer = \"canary-bearer\"\nheaders = {{ x-key = \"canary-header\" }}\n\
         signing_secrets = [\"whsec_Y2FuYXJ5LXNlY3JldC1jYW5hcnktc2VjcmV0\"]\n\
         [[destination]]\nname = \"nowhere\"\ntype = \"webhook\"\nurl = \"http://127.0.0.1:1/canary-path\"\n\
         basic = {{ user = \"shop\", password = \"canary-password\" }}\n\
         [[route]]\nto = [\"partner\", \"nowhere\"]\n",
        receiver.url()
    ));
    let daemon = fixture.daemon(&["--migrate", "--log-format", "json", "--log", "trace"]);
    daemon.wait_until_ready();
    let id = fixture.enqueue(&["shop", "orders", "1", "--key", "order-7"]);
    fixture.enqueue(&["shop", "orders", "1", "--destination", "misspelt"]);
    daemon.wait_for_stats("one is dead", |stats| stats["dead"] == 1);
    daemon.wait_for_log("breaker opened");
    daemon.wait_for_log("events wait for a destination that is not configured");
    let log = daemon.stop_blocking();
    for canary in ["canary", "Y2FuYXJ5"] {
        assert!(!log.contains(canary), "{log}");
    }
    let lines = objects(&log);
    let with =
        |message: &str| -> Vec<&Value> { lines.iter().filter(|line| line["message"] == message).collect() };
    let failed = with("delivery failed, will retry");
    assert_eq!(failed.len(), 2, "{failed:?}");
    let first = failed[0];
    assert_eq!(
        (&first["level"], &first["event_id"], &first["destination"]),
        (&"WARN".into(), &id.as_str().into(), &"partner".into())
    );
    assert_eq!(
        (&first["attempt"], &first["max_attempts"]),
        (&1.into(), &3.into())
    );
    assert!(
        first["error"].as_str().unwrap().contains("503") && first["retry_in"].is_string(),
        "{first}"
    );
    let dead = with("event is dead");
    assert_eq!(
        (dead.len(), &dead[0]["level"], &dead[0]["attempt"]),
        (1, &"ERROR".into(), &3.into())
    );
    let blocked = with("ordering key blocked");
    assert_eq!(
        (blocked.len(), &blocked[0]["ordering_key"]),
        (1, &"order-7".into())
    );
}

#[test]
fn fatal_errors_are_objects_too() {
    let folder = tempfile::tempdir().unwrap();
    let text = "database.url = \"postgres://u:hunter2@h/d\"\n[[destination]]\nname = \"a\"\ntype = \"lgo\"\ncolor = 1\n";
    std::fs::write(folder.path().join("p.toml"), text).unwrap();
    for (arguments, code, expected) in [
        (
            &["run", "--config", "p.toml"][..],
            2,
            "p.toml:4: `destination.type`: unknown value `lgo`",
        ),
        (&["run", "--config", "nowhere.toml"], 2, "cannot read the file"),
        (
            &["stats", "--database", "outbox.db"],
            1,
            "outbox.db: no such file",
        ),
        (&["stats", "--log", "a=b=c"], 2, "--log: invalid filter"),
        (&["frobnicate"], 2, "unrecognized subcommand 'frobnicate'"),
        (&["events", "show", "42"], 2, "invalid value '42'"),
    ] {
        let mut all = arguments.to_vec();
        all.extend(["--log-format", "json"]);
        let ended = run(folder.path(), &all);
        assert_eq!(ended.code, code, "{ended:?}");
        let [line] = &objects(&ended.stderr)[..] else {
            panic!("one line: {ended:?}");
        };
        assert_eq!(
            (&line["level"], &line["exit_code"]),
            (&"ERROR".into(), &code.into())
        );
        assert!(line["error"].as_str().unwrap().contains(expected), "{line}");
        assert!(!ended.stderr.contains("hunter2"), "{ended:?}");
    }
    let mut command = pillarbox(folder.path(), &["frobnicate"]);
    let ended: Finished = command
        .env("PILLARBOX_LOG_FORMAT", "json")
        .output()
        .unwrap()
        .into();
    assert_eq!((objects(&ended.stderr).len(), ended.code), (1, 2));
}

#[test]
fn warnings_of_a_command_are_objects_too() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("database.url = \"outbox.db\"\nretry.max_attempts = 1\n{LOG}");
    std::fs::write(folder.path().join("p.toml"), text).unwrap();
    let ended = run(
        folder.path(),
        &["config", "check", "p.toml", "--connect", "--log-format", "json"],
    );
    let lines = objects(&ended.stderr);
    let levels: Vec<&Value> = lines.iter().map(|line| &line["level"]).collect();
    assert_eq!(levels, ["WARN", "INFO", "INFO", "ERROR"], "{lines:?}");
}
