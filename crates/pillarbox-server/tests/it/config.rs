//! `config check`: the errors of a wrong file.

use std::path::Path;

use crate::command::{Finished, pillarbox, run};

fn check(folder: &Path, text: &str, arguments: &[&str]) -> Finished {
    std::fs::write(folder.join("p.toml"), text).unwrap();
    let mut all = vec!["config", "check", "p.toml"];
    all.extend(arguments);
    run(folder, &all)
}

#[test]
fn a_wrong_file_is_refused_with_every_line() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[database]\nurl = \"outbox.db\"\nshema = \"x\"\n\n[dispatch]\nlease = \"10s\"\n\n\
                [[destination]]\nname = \"a\"\ntype = \"log\"\nretires = 3\n";
    let error = check(folder.path(), text, &[]).failure(2);
    for line in [
        "p.toml:3: unknown key `shema` (did you mean `schema`?)",
        "p.toml:11: unknown key `retires` (did you mean `retry`?)",
    ] {
        assert!(error.contains(line), "{error}");
    }
}

#[test]
fn a_sink_that_cannot_be_built_is_refused_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let hook = "database.url = \"outbox.db\"\n[[destination]]\nname = \"hook\"\ntype = \"webhook\"\nurl = \"not a url\"\n";
    let error = check(folder.path(), hook, &[]).failure(2);
    assert!(
        error.starts_with("error: p.toml:5: destination `hook`: `url` "),
        "{error}"
    );
    let hook = hook.replace("not a url", "http://h/") + "headers = { Host = \"other\" }\n";
    let error = check(folder.path(), &hook, &[]).failure(2);
    assert!(
        error.starts_with("error: p.toml:6: destination `hook`: `headers` cannot have `Host`: "),
        "{error}"
    );
}

#[test]
fn a_message_that_cannot_be_is_refused_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let hook = "database.url = \"outbox.db\"\n[[destination]]\nname = \"to\"\ntype = \"webhook\"\nurl = \"http://h/\"\n";
    let log = hook.replace("\"webhook\"\nurl = \"http://h/\"", "\"log\"");
    for (text, more, said) in [
        (
            hook,
            "source = \"/shop\"",
            "p.toml:6: destination `to`: `source` is an attribute",
        ),
        (
            hook,
            "compressed = true\nformat = \"cloudevents-structured\"",
            "p.toml:6: destination `to`: `compressed` excludes",
        ),
        (
            hook,
            "format = \"cloudevents\"\nheaders = { ce-id = \"x\" }",
            "p.toml:7: destination `to`: `headers` cannot have `ce-id`",
        ),
        (
            &log,
            "format = \"cloudevents\"",
            "p.toml:5: destination `to`: `format` cannot be `cloudevents` here",
        ),
    ] {
        let error = check(folder.path(), &format!("{text}{more}\n"), &[]).failure(2);
        assert!(error.starts_with(&format!("error: {said}")), "{error}");
    }
    check(
        folder.path(),
        &format!("{log}format = \"cloudevents-structured\"\n"),
        &[],
    )
    .success();
}

#[test]
fn a_template_with_an_unknown_name_in_a_url_is_refused_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let hook = "database.url = \"outbox.db\"\n[[destination]]\nname = \"hook\"\ntype = \"webhook\"\nurl = \"http://h/{event_tpye}\"\n";
    let error = check(folder.path(), hook, &[]).failure(2);
    assert!(
        error.starts_with("error: p.toml:5: destination `hook`: `url` ") && error.contains("{event_tpye}"),
        "{error}"
    );
}

#[test]
fn pipelining_to_a_place_that_keeps_no_order_is_refused_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let hook = "database.url = \"outbox.db\"\n[[destination]]\nname = \"hook\"\ntype = \"webhook\"\nurl = \"http://h/\"\n";
    for (more, line) in [
        ("pipelined = true\n", 6),
        ("[[route]]\nto = \"hook\"\npipelined = true\n", 8),
    ] {
        let error = check(folder.path(), &format!("{hook}{more}"), &[]).failure(2);
        let expected = format!(
            "error: p.toml:{line}: `pipelined`: destination `hook` is a webhook, which does not keep"
        );
        assert!(error.starts_with(&expected), "{error}");
    }
    check(folder.path(), &format!("{hook}pipelined = false\n"), &[]).success();
}

#[test]
fn errors_of_keys_rules_and_sinks_are_reported_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let text = "database.url = \"outbox.db\"\nretry.steps = []\n\
                [[destination]]\nname = \"hook\"\ntype = \"webhook\"\nurl = \"not a url\"\n\
                [[destination]]\nname = \"mq\"\ntype = \"rabbitmq\"\nurl = { env = \"PILLARBOX_NO_SUCH\" }\nexchange = \"e\"\n\
                [[destination]]\nname = \"other\"\ntype = \"webhook\"\nurl = \"http://h/\"\npipelined = true\ncolor = 1\n\
                [[destination]]\nname = \"third\"\ntype = \"webhook\"\nurl = \"http://h/\"\npipelined = true\n";
    let error = check(folder.path(), text, &[]).failure(2);
    for line in [
        "p.toml:2: `steps` is empty",
        "p.toml:6: destination `hook`: `url` ",
        "p.toml:10: destination `mq`: `url` comes from the environment variable PILLARBOX_NO_SUCH",
        "p.toml:17: unknown key `color`",
        "p.toml:22: `pipelined`: destination `third`",
    ] {
        assert!(error.contains(line), "{line}: {error}");
    }
    assert_eq!(error.lines().count(), 5, "{error}");
}

#[test]
fn several_destinations_without_a_route_are_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let text = "database.url = \"outbox.db\"\n[[destination]]\nname = \"a\"\ntype = \"log\"\n\
                [[destination]]\nname = \"b\"\ntype = \"log\"\n";
    let checked = check(folder.path(), text, &[]);
    assert!(
        checked
            .stderr
            .starts_with("warning: p.toml:5: 2 destinations and no [[route]]: "),
        "{checked:?}"
    );
    checked.success();
}

#[cfg(not(feature = "full"))]
#[test]
fn kafka_in_a_build_without_it_says_how_to_build_it() {
    let folder = tempfile::tempdir().unwrap();
    let text = "database.url = \"outbox.db\"\n[[destination]]\nname = \"k\"\ntype = \"kafka\"\nbrokers = \"h:9092\"\n";
    let error = check(folder.path(), text, &[]).failure(2);
    assert!(
        error.contains("p.toml:4: ") && error.contains("--features full"),
        "{error}"
    );
}

#[test]
fn the_effective_configuration_is_printed_as_json_without_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[[destination]]\nname = \"hook\"\ntype = \"webhook\"\nurl = \"http://h/hunter2\"\nbearer = \"hunter2\"\n";
    std::fs::write(folder.path().join("p.toml"), text).unwrap();
    let mut command = pillarbox(folder.path(), &["config", "check", "p.toml", "--json"]);
    command.env("PILLARBOX_DATABASE_URL", "postgres://u:hunter2@h/d");
    command.env("PILLARBOX_DISPATCH_LEESE", "1s");
    let ended: Finished = command.output().unwrap().into();
    assert!(
        ended
            .stderr
            .contains("warning: environment variable PILLARBOX_DISPATCH_LEESE: unknown variable")
    );
    assert!(!ended.stderr.contains("hunter2"), "{ended:?}");
    let printed = ended.success();
    assert!(!printed.contains("hunter2"), "{printed}");
    let config: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(
        config["databases"][0]["url"],
        "postgres://u@h:5432/d?sslmode=prefer"
    );
    assert_eq!(config["destinations"][0]["name"], "hook");
}

#[test]
fn connect_asks_whether_everything_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let text = "database.url = \"outbox.db\"\n[[destination]]\nname = \"log\"\ntype = \"log\"\n";
    let error = check(folder.path(), text, &["--connect"]);
    assert_eq!(error.code, 1);
    assert!(error.stderr.contains("pillarbox migrate"), "{error:?}");
    run(folder.path(), &["migrate", "--database", "outbox.db"]).success();
    let there = check(folder.path(), text, &["--connect"]);
    assert!(
        there
            .stderr
            .contains("database sqlite://outbox.db: ok\ndestination log: ok"),
        "{there:?}"
    );
    there.success();
}

#[test]
fn a_variable_overrides_the_database_of_the_file_and_the_rest_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let text = "database.url = \"file.db\"\nlimits.max_payload = 10\n[[destination]]\nname = \"hook\"\ntype = \"log\"\n";
    std::fs::write(folder.path().join("pillarbox.toml"), text).unwrap();
    let with_variable = |arguments: &[&str]| -> Finished {
        let mut command = pillarbox(folder.path(), arguments);
        command.env("PILLARBOX_DATABASE_URL", "variable.db");
        command.output().unwrap().into()
    };
    with_variable(&["migrate"]).success();
    assert!(!folder.path().join("file.db").exists());
    let listed = with_variable(&["destinations", "ls", "--json"]).success();
    assert!(
        listed.contains("\"name\":\"hook\",\"configured\":true"),
        "{listed}"
    );
    let error = with_variable(&["enqueue", "n", "t", "\"longer than ten\""]).failure(1);
    assert!(error.contains("the limit is 10"), "{error}");
}

#[test]
fn an_event_for_an_unknown_destination_is_warned_about() {
    let folder = tempfile::tempdir().unwrap();
    let text = "database.url = \"outbox.db\"\n[[destination]]\nname = \"partner\"\ntype = \"log\"\n";
    std::fs::write(folder.path().join("pillarbox.toml"), text).unwrap();
    run(folder.path(), &["migrate"]).success();
    let enqueue = |destination: &str| {
        run(
            folder.path(),
            &["enqueue", "n", "t", "1", "--destination", destination],
        )
    };
    let enqueued = enqueue("partnr");
    assert_eq!(
        enqueued.stderr,
        "warning: unknown destination `partnr`: its events wait until a worker serves it (did you mean `partner`?)\n"
    );
    assert!(enqueued.success().ends_with(" new\n"));
    assert_eq!(enqueue("partner").stderr, "");
}
