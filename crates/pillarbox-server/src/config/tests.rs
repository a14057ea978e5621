//! What a configuration says, and what is said of a wrong one.

use std::time::Duration;

use super::env::{Overrides, overrides};
use super::resolve::resolve;
use super::*;

const LOG: &str = "[[destination]]\nname = \"log\"\ntype = \"log\"\n";

fn good(text: &str) -> Config {
    resolve(text, &Overrides::default())
        .expect("a good configuration")
        .0
}

/// All that is wrong, one line each, as a person sees it.
fn wrong(text: &str) -> String {
    wrong_with(text, &[])
}

fn wrong_with(text: &str, variables: &[(&str, &str)]) -> String {
    let overrides = environment(variables);
    let findings = resolve(text, &overrides).expect_err("a wrong configuration");
    let file = "p.toml".to_owned();
    ConfigError { file, findings }.to_string()
}

fn warnings(text: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let overrides = environment(variables);
    let (_, warnings) = resolve(text, &overrides).expect("a good configuration");
    warnings.iter().map(|warning| warning.line("p.toml")).collect()
}

fn environment(variables: &[(&str, &str)]) -> Overrides {
    overrides(
        variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
    )
}

/// A file with a database, a destination and this.
fn with(more: &str) -> String {
    format!("database.url = \"outbox.db\"\n{more}\n{LOG}")
}

#[test]
fn the_sample_is_good_as_it_is_and_with_everything_uncommented() {
    good(SAMPLE);
    // Both kinds of schedule are shown; a file has only one of them.
    let all: Vec<&str> = SAMPLE
        .lines()
        .filter(|line| !line.starts_with("#steps") && *line != "url = \"sqlite://outbox.db\"")
        .map(|line| {
            line.strip_prefix('#')
                .filter(|rest| !rest.starts_with(' '))
                .unwrap_or(line)
        })
        .collect();
    let text = all
        .join("\n")
        .replace("[database]", "[database]\nurl = \"postgres://localhost/shop\"");
    let config = good(&text);
    assert_eq!(config.destinations.len(), 3);
    assert_eq!(config.routes.len(), 1);
    assert_eq!(
        config.dispatch,
        Settings {
            max_attempts: 25,
            ..Settings::default()
        }
    );
    assert_eq!(config.destinations[2].retry.limit(), Some(10));
}

#[test]
fn what_is_not_said_has_its_default() {
    let config = good(&with(""));
    assert_eq!(config.dispatch, Settings::default());
    assert_eq!(config.limits, Limits::default());
    assert_eq!(config.http.listen.to_string(), LISTEN);
    assert_eq!(config.database.schema, "pillarbox");
    assert_eq!(config.destinations[0].retry, RetryPolicy::default());
    assert_eq!(config.destinations[0].timeout, Settings::default().timeout);
}

#[test]
fn every_mistake_is_said_with_its_line_and_what_to_do() {
    for (text, expected) in [
        (
            "[dispatch]\nleese = \"1s\"",
            "p.toml:3: unknown key `leese`; did you mean `lease`?",
        ),
        (
            "[dispach]\nlease = \"1s\"",
            "p.toml:2: unknown key `dispach`; did you mean `dispatch`?",
        ),
        (
            "[dispatch]\nlease = 60",
            "p.toml:3: `dispatch.lease`: expected a duration such as \"20s\", \"500ms\" or \"1h 30m\", found integer `60`",
        ),
        (
            "[dispatch]\n\nlease = \"soon\"",
            "p.toml:4: `dispatch.lease`: expected a duration such as \"20s\", \"500ms\" or \"1h 30m\", found string \"soon\"",
        ),
        (
            "[dispatch]\nmax_bytes = \"32MB\"",
            "p.toml:3: `dispatch.max_bytes`: expected a size such as \"16MiB\", \"64KiB\" or a number of bytes, found string \"32MB\"",
        ),
        (
            "[dispatch]\nlease = \"30s\"",
            "p.toml:3: `dispatch.lease` must be at least twice `timeout`, which is 20s",
        ),
        (
            "[dispatch]\npoll_interval = \"21s\"",
            "p.toml:3: `dispatch.poll_interval` must be at most a third of `lease`",
        ),
        (
            "[dispatch]\nbatch = 0",
            "p.toml:3: `dispatch.batch` must be at least 1",
        ),
        (
            "[retry]\nmax_attempts = 0",
            "p.toml:3: `retry.max_attempts`: expected a number of attempts from 1 on, or \"unlimited\", found integer `0`",
        ),
        (
            "[retry]\nbase = \"1s\"\nsteps = [\"1s\"]",
            "p.toml:4: `steps` says every wait; remove `base` and `max`, or remove `steps`",
        ),
        (
            "[retry]\nsteps = []",
            "p.toml:3: `steps` is empty; write at least one wait, such as [\"1s\", \"5s\"]",
        ),
        (
            "[retry]\njitter = \"equl\"",
            "p.toml:3: `retry.jitter`: unknown value `equl`; did you mean `equal`?",
        ),
        (
            "[http]\nlisten = \"localhost\"",
            "p.toml:3: `localhost` is no address; write an IP and a port, such as \"127.0.0.1:7700\"",
        ),
        (
            "http = 5",
            "p.toml:2: expected a table [http], found a value of the type integer",
        ),
        (
            "[[route]]\ntopic = \"o*\"\nto = \"log\"",
            "p.toml:3: `topic`: `o*` is no pattern; write `*` for anything, `orders.*` for what begins with \"orders.\", or the name itself",
        ),
        (
            "[[route]]\nto = \"logg\"",
            "p.toml:3: there is no destination `logg`; did you mean `log`?",
        ),
        (
            "[[route]]\ntopic = \"orders\"",
            "p.toml:2: the key `to` is missing",
        ),
        (
            "[[destination]]\nname = \"log\"\ntype = \"log\"",
            "p.toml:6: there are two destinations named `log`; names are unique",
        ),
        (
            "[[destination]]\nname = \"a\"\ntype = \"rabitmq\"",
            "p.toml:4: `destination.type`: unknown value `rabitmq`; did you mean `rabbitmq`?",
        ),
        (
            "[[destination]]\nname = \"a\"\ntype = \"log\"\ncolour = 1",
            "p.toml:5: unknown key `colour`; known are `name`, `timeout`, `concurrency` and `retry`",
        ),
        (
            "[[destination]]\nname = \"a\"\ntype = \"log\"\ntimeuot = \"1s\"",
            "p.toml:5: unknown key `timeuot`; did you mean `timeout`?",
        ),
        (
            "[[destination]]\nname = \"a\"",
            "p.toml:2: the key `type` is missing",
        ),
        (
            "[[destination]]\ntype = \"log\"",
            "p.toml:2: the key `name` is missing",
        ),
        (
            "[[destination]]\nname = \"a\"\ntype = \"log\"\nconcurrency = 0",
            "p.toml:5: `concurrency` must be at least 1",
        ),
        (
            "[[destination]]\nname = \"a\"\ntype = \"log\"\ntimeout = \"40s\"",
            "p.toml:5: destination `a`: `dispatch.lease` (1m) must be at least twice its `timeout` (40s)",
        ),
        (
            "[[destination]]\nname = \"a\"\ntype = \"log\"\n[destination.retry]\nmax = \"1s\"\nbas = \"1s\"",
            "p.toml:7: unknown key `bas`; did you mean `base`?",
        ),
        (
            "[limits]\nmax_payload = -1",
            "p.toml:3: `limits.max_payload`: expected a size such as \"16MiB\", \"64KiB\" or a number of bytes, found integer `-1`",
        ),
    ] {
        assert_eq!(wrong(&with(text)), expected, "{text}");
    }
}

#[test]
fn a_file_that_is_not_toml_says_where() {
    let error = wrong("[database]\nurl = sqlite.db\n");
    assert!(error.starts_with("p.toml:2: this is not TOML: "), "{error}");
}

#[test]
fn what_is_missing_is_said_with_an_example() {
    let error = wrong("");
    assert!(
        error.contains("p.toml: no database is named; write `url = "),
        "{error}"
    );
    assert!(
        error.contains("p.toml: there is no destination; add one"),
        "{error}"
    );
}

#[test]
fn all_mistakes_are_said_at_once() {
    let error = wrong(&with("[dispatch]\nleese = 1\n[http]\nlisten = \"x\""));
    assert_eq!(error.lines().count(), 2, "{error}");
}

#[test]
fn a_database_of_another_kind_is_refused_without_its_password() {
    let error = wrong(&format!("database.url = \"mysql://u:hunter2@h/d\"\n{LOG}"));
    assert!(
        error.starts_with("p.toml:1: `mysql://` is no database that Pillarbox knows"),
        "{error}"
    );
    assert!(!error.contains("hunter2"), "{error}");
}

#[test]
fn a_database_from_a_missing_variable_says_which() {
    let error = wrong(&format!(
        "[database]\nurl = {{ env = \"PILLARBOX_NO_SUCH\" }}\n{LOG}"
    ));
    assert_eq!(
        error,
        "p.toml:2: `url` is to come from the environment variable PILLARBOX_NO_SUCH, which is not set; set it"
    );
}

#[test]
fn an_address_that_others_can_reach_must_be_allowed() {
    let error = wrong(&with("[http]\nlisten = \"0.0.0.0:7700\""));
    assert!(
        error.starts_with("p.toml:3: 0.0.0.0:7700 can be reached from other machines"),
        "{error}"
    );
    assert!(error.contains("no authentication"), "{error}");
    assert!(
        good(&with("[http]\nlisten = \"0.0.0.0:7700\"\nallow_remote = true"))
            .http
            .allow_remote
    );
    good(&with("[http]\nlisten = \"[::1]:7700\""));
}

#[test]
fn the_environment_overrides_the_file() {
    let variables = [
        ("PILLARBOX_DATABASE_URL", "postgres://u:hunter2@h/d"),
        ("PILLARBOX_DISPATCH_LEASE", "2m"),
        ("PILLARBOX_DISPATCH_BATCH", "7"),
        ("PILLARBOX_DISPATCH_NAMESPACES", "a,b"),
        ("PILLARBOX_HTTP_LISTEN", "127.0.0.1:1"),
        ("PILLARBOX_RETRY_MAX_ATTEMPTS", "unlimited"),
        ("PILLARBOX_LIMITS_MAX_PAYLOAD", "1MiB"),
    ];
    let overrides = environment(&variables);
    let (config, warnings) = resolve(&with("[dispatch]\nlease = \"61s\""), &overrides).expect("good");
    assert!(warnings.is_empty());
    assert_eq!(config.database.target.to_string(), "postgres://u:***@h/d");
    assert_eq!(config.dispatch.lease, Duration::from_secs(120));
    assert_eq!(config.dispatch.batch, 7);
    assert_eq!(config.dispatch.max_attempts, u32::MAX);
    assert_eq!(
        config.dispatch.scope.names(),
        Some(vec!["a".to_owned(), "b".to_owned()])
    );
    assert_eq!(config.http.listen.port(), 1);
    assert_eq!(config.limits.payload, 1024 * 1024);
    assert_eq!(config.destinations[0].retry.limit(), None);
}

#[test]
fn a_wrong_variable_is_named() {
    for (name, value, expected) in [
        (
            "PILLARBOX_DISPATCH_LEASE",
            "soon",
            "environment variable PILLARBOX_DISPATCH_LEASE: `dispatch.lease`: expected a duration such as",
        ),
        (
            "PILLARBOX_DISPATCH_LEASE",
            "5s",
            "environment variable PILLARBOX_DISPATCH_LEASE: `dispatch.lease` must be at least twice",
        ),
        (
            "PILLARBOX_HTTP_ALLOW_REMOTE",
            "yes",
            "environment variable PILLARBOX_HTTP_ALLOW_REMOTE: `http.allow_remote`: expected a boolean",
        ),
        (
            "PILLARBOX_DISPATCH_BATCH",
            "many",
            "environment variable PILLARBOX_DISPATCH_BATCH: `dispatch.batch`: expected usize",
        ),
    ] {
        let error = wrong_with(&with(""), &[(name, value)]);
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn what_may_harm_is_warned_about() {
    assert_eq!(
        warnings(
            &with("[retry]\nmax_attempts = 2"),
            &[("PILLARBOX_DISPATCH_LEESE", "1s")]
        ),
        [
            "environment variable PILLARBOX_DISPATCH_LEESE: overrides nothing; did you mean PILLARBOX_DISPATCH_LEASE?",
            "p.toml:3: `max_attempts` is 2: a crash may make an innocent event dead; 3 or more keep the promise",
        ]
    );
    assert!(warnings(&with("[retry]\nmax_attempts = 3"), &[]).is_empty());
}

#[test]
fn a_destination_inherits_what_it_does_not_say() {
    let retry = "[retry]\nbase = \"2s\"\nmax = \"4s\"\nmax_attempts = 7\njitter = \"none\"\n";
    let own = "[[destination]]\nname = \"own\"\ntype = \"log\"\n[destination.retry]\nsteps = [\"9s\"]\n";
    let config = good(&with(&format!("{retry}{own}")));
    let delays = |index: usize| -> Vec<u64> {
        let policy = &config.destinations[index].retry;
        (1..7)
            .filter_map(|attempts| policy.delay(attempts, 0.5))
            .map(|delay| delay.as_secs())
            .collect()
    };
    assert_eq!(delays(0), [9; 6]);
    assert_eq!(delays(1), [2, 4, 4, 4, 4, 4]);
    assert_eq!(config.destinations[0].retry.limit(), Some(7));
}

#[test]
fn a_destinations_timeout_reaches_its_sink() {
    let text =
        "[[destination]]\nname = \"hook\"\ntype = \"webhook\"\nurl = \"http://h/\"\ntimeout = \"3s\"\n";
    let config = good(&with(text));
    let SinkConfig::Webhook(webhook) = &config.destinations[0].sink else {
        panic!("it is a webhook: {:?}", config.destinations[0].sink);
    };
    assert_eq!(webhook.timeout, Duration::from_secs(3));
}

#[test]
fn what_is_in_force_is_shown_without_secrets() {
    let hook = "[[destination]]\nname = \"hook\"\ntype = \"webhook\"\nurl = \"http://h/hunter2\"\nbearer = \"hunter2\"\n";
    let route = "[[route]]\ntopic = \"orders.*\"\nto = \"hook\"\n";
    let config = good(&format!(
        "database.url = \"postgres://u:hunter2@h/d?password=hunter2\"\n{hook}{route}{LOG}"
    ));
    let shown = config.effective();
    assert!(!shown.to_string().contains("hunter2"), "{shown}");
    assert!(!format!("{config:?}").contains("hunter2"), "{config:?}");
    assert_eq!(shown["database"]["url"], "postgres://u:***@h/d?password=***");
    assert_eq!(shown["dispatch"]["lease"], "1m");
    assert_eq!(shown["destinations"][0]["sink"]["type"], "webhook");
    assert_eq!(shown["routes"][0]["topic"], "orders.*");
}
