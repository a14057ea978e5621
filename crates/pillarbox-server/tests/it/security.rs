//! No secret in any output, `strict`, and who may ask the HTTP server what.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use pillarbox_testkit::wait::until_ok_blocking;
use serde_json::Value;

use crate::command::{Finished, pillarbox, run};
use crate::daemon::Daemon;
use crate::http::{request, request_as};

/// In every place of a configuration that takes a secret.
const CANARY: &str = "canary4711x";

fn write(folder: &Path, config: &str) {
    let path = folder.join("pillarbox.toml");
    std::fs::write(&path, config).expect("writes");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("its mode");
}

/// The names of `destinations`.
fn names() -> Vec<&'static str> {
    let kafka = cfg!(feature = "full").then_some("kafka");
    let others = ["rabbit", "nats", "redis", "hook", "basic", "user", "token"];
    others.into_iter().chain(kafka).collect()
}

/// Every kind of destination that this build has. Port 1 refuses connections.
fn destinations() -> String {
    let kafka = format!(
        "[[destination]]\nname = \"kafka\"\ntype = \"kafka\"\nbrokers = \"127.0.0.1:1\"\ntimeout = \"2s\"\n\
         sasl = {{ user = \"u\", password = \"{CANARY}\" }}\n"
    );
    let kafka = if cfg!(feature = "full") {
        kafka.as_str()
    } else {
        ""
    };
    let names = names();
    format!(
        "[[destination]]\nname = \"rabbit\"\ntype = \"rabbitmq\"\nexchange = \"e\"\n\
         url = \"amqp://u:{CANARY}@127.0.0.1:1/%2f\"\n\
         [[destination]]\nname = \"nats\"\ntype = \"nats\"\nurl = \"nats://u:{CANARY}@127.0.0.1:1\"\n\
         [[destination]]\nname = \"redis\"\ntype = \"redis\"\nurl = \"redis://u:{CANARY}@127.0.0.1:1\"\n\
         [[destination]]\nname = \"hook\"\ntype = \"webhook\"\nbearer = \"{CANARY}\"\n\
         url = \"http://127.0.0.1:1/{CANARY}?{CANARY}={CANARY}\"\nheaders = {{ x-a = \"{CANARY}\" }}\n\
         [[destination]]\nname = \"basic\"\ntype = \"webhook\"\nurl = \"http://u:{CANARY}@127.0.0.1:1/\"\n\
         basic = {{ user = \"u\", password = \"{CANARY}\" }}\n\
         [[destination]]\nname = \"user\"\ntype = \"webhook\"\nurl = \"http://{CANARY}@127.0.0.1:1/{{topic}}/{CANARY}\"\n\
         headers = {{ x-b = \"{{topic}}-{CANARY}\" }}\n\
         [[destination]]\nname = \"token\"\ntype = \"nats\"\nurl = \"nats://{CANARY}@127.0.0.1:1\"\n\
         {kafka}[[route]]\nto = {names:?}\n"
    )
}

fn has_no_canary(what: &str, finished: &Finished) {
    let all = format!("{}{}", finished.stdout, finished.stderr);
    assert!(!all.contains(CANARY), "{what}: {all}");
}

/// No process that runs in this folder shows a secret to the other users of the machine.
fn no_process_in(folder: &Path) {
    let processes = std::fs::read_dir("/proc").expect("Linux").flatten();
    let here = processes.filter(|process| {
        let runs_in = std::fs::read_link(process.path().join("cwd"));
        runs_in.is_ok_and(|runs_in| runs_in == folder)
    });
    let lines = here.map(|process| std::fs::read(process.path().join("cmdline")).unwrap_or_default());
    let lines: Vec<String> = lines
        .map(|line| String::from_utf8_lossy(&line).into_owned())
        .collect();
    assert!(!lines.is_empty(), "the daemon runs there");
    assert!(lines.iter().all(|line| !line.contains(CANARY)), "{lines:?}");
}

#[test]
fn no_command_and_no_log_prints_a_secret() {
    let folder = tempfile::tempdir().expect("a folder");
    write(
        folder.path(),
        &format!("database.url = \"outbox.db\"\n{}", destinations()),
    );
    run(folder.path(), &["migrate"]).success();
    for arguments in [
        &["config", "check"][..],
        &["config", "check", "--json"],
        &["config", "check", "--connect"],
        &["destinations", "ls", "--json"],
        &["stats"],
    ] {
        has_no_canary(&arguments.join(" "), &run(folder.path(), arguments));
    }
    run(folder.path(), &["enqueue", "shop", "orders", "{}"]).success();
    let daemon = Daemon::start(pillarbox(
        folder.path(),
        &["run", "--listen", "127.0.0.1:0", "--log", "trace"],
    ));
    no_process_in(folder.path());
    for destination in names() {
        until_ok_blocking("an attempt has failed", || {
            let listed = run(
                folder.path(),
                &["events", "ls", "--json", "--destination", destination],
            );
            has_no_canary("events ls", &listed);
            if listed.stdout.contains("refused") {
                Ok(())
            } else {
                Err(listed.stdout)
            }
        });
    }
    let log = daemon.stop_blocking();
    assert!(!log.contains(CANARY), "{log}");
}

#[test]
fn no_form_of_a_database_url_prints_its_password() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = "[[destination]]\nname = \"log\"\ntype = \"log\"\n";
    for url in [
        format!("postgres://u:{CANARY}@127.0.0.1:1/d"),
        format!("postgres://u:1?{CANARY}@127.0.0.1:1/d"),
        format!("postgres://u:1/{CANARY}@127.0.0.1:1/d"),
        format!("postgres://u:1#{CANARY}@127.0.0.1:1/d"),
        format!("postgres://u@127.0.0.1:1/d?password={CANARY}"),
        format!("postgres://u@127.0.0.1:1/d?Password={CANARY}"),
        format!("postgres://u@127.0.0.1:1/d?sslpassword={CANARY}"),
        format!("postgres:/u:{CANARY}@127.0.0.1:1/d"),
        format!("host=127.0.0.1 port=1 user=u password={CANARY}"),
        format!("host = 127.0.0.1 password = {CANARY}"),
        format!("mysql://u:{CANARY}@127.0.0.1:1/d"),
    ] {
        write(folder.path(), &format!("database.url = \"{url}\"\n{log}"));
        for arguments in [
            &["--log", "trace", "config", "check", "--connect"][..],
            &["config", "check", "--json"],
            &["--log", "trace", "stats"],
            &["--log", "trace", "--log-format", "json", "stats"],
        ] {
            has_no_canary(&url, &run(folder.path(), arguments));
        }
        has_no_canary(
            &url,
            &run(folder.path(), &["--log", "trace", "stats", "--database", &url]),
        );
    }
}

#[test]
fn a_password_on_the_command_line_is_a_warning() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("postgres://u:{CANARY}@127.0.0.1:1/d");
    let finished = run(folder.path(), &["stats", "--database", &url]);
    assert_eq!(finished.stderr.matches("process list").count(), 1, "{finished:?}");
    let finished = run(
        folder.path(),
        &["stats", "--database", "postgres://u@127.0.0.1:1/d"],
    );
    assert!(!finished.stderr.contains("process list"), "{finished:?}");
}

const EXPOSED: &str = "database.url = \"outbox.db\"\n[[destination]]\nname = \"queue\"\ntype = \"redis\"\n\
    url = \"redis://u:canary4711x@redis.invalid\"\n";

#[test]
fn exposed_credentials_are_one_warning_and_strict_refuses_them() {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), EXPOSED);
    run(folder.path(), &["migrate"]).success();
    let checked = run(folder.path(), &["config", "check"]);
    let warning = "`url` sends the password unencrypted to redis.invalid (write rediss://)";
    assert_eq!(
        (checked.code, checked.stderr.matches(warning).count()),
        (0, 1),
        "{checked:?}"
    );
    assert!(checked.stderr.contains("pillarbox.toml:5: "), "{checked:?}");

    let listed = run(folder.path(), &["destinations", "ls"]).success();
    assert_eq!(listed.matches(warning).count(), 1, "{listed}");
    let json: Value = serde_json::from_str(&run(folder.path(), &["destinations", "ls", "--json"]).success())
        .expect("one line");
    assert_eq!(json["exposure"], warning);

    let daemon = Daemon::start(pillarbox(folder.path(), &["run", "--listen", "127.0.0.1:0"]));
    daemon.wait_until_ready();
    assert_eq!(daemon.log().matches(warning).count(), 1, "{}", daemon.log());
    daemon.stop_blocking();

    write(
        folder.path(),
        &format!(
            "[security]\nstrict = true\n{}",
            EXPOSED.replacen("database.url", "[database]\nurl", 1)
        ),
    );
    for arguments in [&["config", "check"][..], &["run", "--listen", "127.0.0.1:0"]] {
        let error = run(folder.path(), arguments).failure(2);
        assert!(
            error.contains(warning) && error.contains("refused by `strict`"),
            "{error}"
        );
    }
}

#[test]
fn a_configuration_that_others_can_read_is_a_warning_and_init_writes_none() {
    let folder = tempfile::tempdir().expect("a folder");
    run(folder.path(), &["init"]).success();
    let path = folder.path().join("pillarbox.toml");
    let mode = |path: &Path| std::fs::metadata(path).expect("it exists").permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    write(folder.path(), &EXPOSED.replace("redis.invalid", "localhost"));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("its mode");
    let checked = run(folder.path(), &["config", "check"]);
    assert_eq!(checked.code, 0, "{checked:?}");
    assert!(
        checked.stderr.contains("every user of this machine can read"),
        "{checked:?}"
    );
}

#[test]
fn the_api_answers_to_known_names_and_the_probes_to_any() {
    let folder = tempfile::tempdir().expect("a folder");
    write(
        folder.path(),
        "database.url = \"outbox.db\"\nhttp = { hosts = [\"box.example.com\"], ops_listen = \"127.0.0.1:0\" }\n\
         [[destination]]\nname = \"log\"\ntype = \"log\"\n",
    );
    let daemon = Daemon::start(pillarbox(
        folder.path(),
        &["run", "--migrate", "--listen", "127.0.0.1:0"],
    ));
    daemon.wait_until_ready();
    let address = daemon.address();
    let status = |host: &str| request_as(&address, host, "GET", "/api/v1/stats").status;
    assert_eq!((status("localhost"), status("box.example.com:80")), (200, 200));
    assert_eq!(status("evil.example.com"), 421);

    daemon.wait_for_log("answering probes");
    let log = daemon.log();
    let (_, ops) = log.split_once("answering probes").expect("just found");
    let (_, ops) = ops.split_once("http://").expect("an address");
    let ops: String = ops
        .chars()
        .take_while(|c| c.is_ascii_digit() || ".:".contains(*c))
        .collect();
    let ready = request_as(&ops, "10.1.2.3.nip.example", "GET", "/readyz");
    assert_eq!(
        (ready.status, ready.body.as_str()),
        (200, "{\"status\":\"ready\"}")
    );
    assert_eq!(request(&ops, "GET", "/healthz").status, 200);
    assert_eq!(request(&ops, "GET", "/api/v1/stats").status, 404);
    daemon.stop_blocking();
}
