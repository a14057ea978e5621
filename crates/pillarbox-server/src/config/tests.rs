//! Valid configurations, and the errors of invalid ones.

mod adopt;
mod retention;
mod security;
mod upcasts;

use std::time::Duration;

use pillarbox::RetryPolicy;
use pillarbox_dispatch::{OnDead, Unrouted};
use pillarbox_store::retention::{Keep, Retention};

use super::env::{Overrides, overrides};
use super::security::FileMode;
use super::*;

const LOG: &str = "[[destination]]\nname = \"log\"\ntype = \"log\"\n";

fn good(text: &str) -> Config {
    good_with(text, &[]).0
}

fn good_with(text: &str, variables: &[(&str, &str)]) -> (Config, Vec<Finding>) {
    let draft = Draft::of("p.toml", text, &environment(variables), FileMode::default()).expect("valid TOML");
    draft.finish().expect("a good configuration")
}

/// All errors, one line each, as the operator sees them.
fn wrong(text: &str) -> String {
    wrong_with(text, &[])
}

fn wrong_with(text: &str, variables: &[(&str, &str)]) -> String {
    let draft = Draft::of("p.toml", text, &environment(variables), FileMode::default());
    let error = draft.and_then(Draft::finish).expect_err("a wrong configuration");
    error.to_string()
}

fn warnings(text: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let (_, warnings) = good_with(text, variables);
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
    assert_eq!(config.routes.len(), 2);
    assert_eq!(config.adopt.len(), 1);
    let mut shown = Retention::usual();
    let audit = Keep {
        delivered: Some(Duration::from_secs(90 * 86_400)),
        ..shown.keep
    };
    shown.namespaces.insert("audit".to_owned(), audit);
    assert_eq!(
        config.dispatch,
        Settings {
            max_attempts: 25,
            retention: shown,
            ..Settings::default()
        }
    );
    assert_eq!(config.destinations[2].policy.retry.limit(), Some(10));
    assert_eq!(config.routes[0].targets.len(), 1, "that of the adopted table");
    assert_eq!(config.routes[1].targets.len(), 2);
}

#[test]
fn missing_keys_have_their_defaults() {
    let config = good(&with(""));
    let settings = Settings {
        retention: Retention::usual(),
        ..Settings::default()
    };
    assert_eq!(config.dispatch, settings);
    assert_eq!(config.limits, Limits::default());
    assert_eq!(config.http.listen.to_string(), LISTEN);
    let database = &config.databases[0];
    assert_eq!(
        (database.schema.as_str(), database.name.as_str()),
        ("pillarbox", "default")
    );
    let to = &config.destinations[0];
    assert_eq!(to.policy.retry, RetryPolicy::default());
    assert_eq!(to.policy.timeout, Settings::default().timeout);
    assert_eq!((to.policy.on_dead, to.policy.pipelined), (OnDead::Block, false));
    assert_eq!((to.rate, to.fair_by_tenant), (None, false));
}

#[test]
fn every_error_has_its_line_and_what_to_do() {
    for (text, expected) in [
        (
            "[dispatch]\nleese = \"1s\"",
            "p.toml:3: unknown key `leese` (did you mean `lease`?)",
        ),
        (
            "[dispach]\nlease = \"1s\"",
            "p.toml:2: unknown key `dispach` (did you mean `dispatch`?)",
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
            "p.toml:3: `retry.max_attempts`: expected a number of attempts of at least 1, or \"unlimited\", found integer `0`",
        ),
        (
            "[retry]\nbase = \"1s\"\nsteps = [\"1s\"]",
            "p.toml:4: `steps` sets every wait (remove `base` and `max`, or remove `steps`)",
        ),
        (
            "[retry]\nsteps = []",
            "p.toml:3: `steps` is empty (add at least one wait, such as [\"1s\", \"5s\"])",
        ),
        (
            "[retry]\njitter = \"equl\"",
            "p.toml:3: `retry.jitter`: unknown value `equl` (did you mean `equal`?)",
        ),
        (
            "[http]\nlisten = \"localhost\"",
            "p.toml:3: invalid address `localhost` (use an IP and a port, such as \"127.0.0.1:7700\")",
        ),
        (
            "http = 5",
            "p.toml:2: expected a table [http], found a value of type integer",
        ),
        (
            "[[route]]\ntopic = \"o*\"\nto = \"log\"",
            "p.toml:3: `topic`: invalid pattern `o*` (use `*` for anything, `orders.*` for a prefix, or an exact name)",
        ),
        (
            "[[route]]\nto = \"logg\"",
            "p.toml:3: unknown destination `logg` (did you mean `log`?)",
        ),
        ("[[route]]\ntopic = \"orders\"", "p.toml:2: missing key `to`"),
        (
            "[[destination]]\nname = \"log\"\ntype = \"log\"",
            "p.toml:6: duplicate destination name `log` (choose another)",
        ),
        (
            "[[destination]]\nname = \"a\"\ntype = \"rabitmq\"",
            "p.toml:4: `destination.type`: unknown value `rabitmq` (did you mean `rabbitmq`?)",
        ),
        (
            "[[destination]]\nname = \"a\"\ntype = \"log\"\ncolour = 1",
            "p.toml:5: unknown key `colour` (known: `name`, `timeout`, `concurrency`, `rate`, `burst`, `on_dead`, \
             `pipelined`, `fair_by`, `upcast`, `retry`, \
             `format`, `source`, `compressed`, `compress_over` and `max_decompressed`)",
        ),
        (
            "[[destination]]\nname = \"a\"\ntype = \"log\"\ntimeuot = \"1s\"",
            "p.toml:5: unknown key `timeuot` (did you mean `timeout`?)",
        ),
        ("[[destination]]\nname = \"a\"", "p.toml:2: missing key `type`"),
        ("[[destination]]\ntype = \"log\"", "p.toml:2: missing key `name`"),
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
            "p.toml:7: unknown key `bas` (did you mean `base`?)",
        ),
        (
            "[dispatch]\nunrouted = \"forget\"",
            "p.toml:3: `dispatch.unrouted`: unknown value `forget` (known: `hold`, `delete` and `dead`)",
        ),
        (
            "[dispatch]\nlane_ranges = 0",
            "p.toml:3: `dispatch.lane_ranges` must be at least 1 and at most 4096",
        ),
        (
            "[dispatch]\nheartbeat = \"0s\"",
            "p.toml:3: `dispatch.heartbeat` must not be zero: the worker would do nothing else",
        ),
        (
            "[dispatch]\nsweep_interval = \"0s\"",
            "p.toml:3: `dispatch.sweep_interval` must not be zero: the sweeper would never rest",
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
fn invalid_toml_is_reported_with_its_line() {
    let error = wrong("[database]\nurl = sqlite.db\n");
    assert!(error.starts_with("p.toml:2: invalid TOML: "), "{error}");
}

#[test]
fn a_missing_section_is_reported_with_an_example() {
    let error = wrong("");
    assert!(error.contains("p.toml: no database (write `url = "), "{error}");
    assert!(error.contains("p.toml: no destination (add one"), "{error}");
}

#[test]
fn all_errors_are_reported_at_once() {
    let error = wrong(
        "[database]\nurl = \"mysql://h/d\"\nmax_connections = 1\n\
         [dispatch]\nlease = \"soon\"\nbatch = \"many\"\ncolor = 1\n\
         [retry]\nsteps = []\nbase = \"1s\"\n\
         [http]\nlisten = \"x\"\n\
         [[destination]]\nname = \"hook\"\ntype = \"webhook\"\nurl = 5\nbearer = 6\nconcurency = 1\ntimeout = 7\n\
         [destination.retry]\nbas = \"1s\"\nmax = \"never\"\n\
         [[destination]]\ntype = \"kafka\"\n\
         [[route]]\nto = [\"hook\", \"hok\"]\ntopic = \"o*\"\n",
    );
    let lines: Vec<&str> = error
        .lines()
        .map(|line| line.split(": ").next().unwrap())
        .collect();
    let expected = [2, 3, 5, 6, 7, 9, 9, 12, 16, 17, 18, 19, 21, 22, 23, 23, 26, 27];
    let expected: Vec<String> = expected.iter().map(|line| format!("p.toml:{line}")).collect();
    assert_eq!(lines, expected, "{error}");
}

#[test]
fn errors_of_rules_are_reported_at_once() {
    let error = wrong(&with(
        "[dispatch]\nbatch = 0\nmax_in_flight = 0\nheartbeat = \"0s\"\npoll_interval = \"0s\"\n\
         [[destination]]\nname = \"a\"\ntype = \"log\"\nconcurrency = 0\nburst = 5\ntimeout = \"0s\"",
    ));
    assert_eq!(error.lines().count(), 7, "{error}");
}

#[test]
fn an_event_that_chooses_where_it_goes_is_warned_about() {
    let kafka = "database.url = \"sqlite://a.db\"\n[[destination]]\nname = \"k\"\ntype = \"kafka\"\nbrokers = \"h:9092\"\n";
    let said = |line: u8| {
        format!(
            "p.toml:{line}: every event chooses its `topic` (list what it may be in `allow`, such as [\"orders\", \
             \"payments.*\"], or begin `topic` with a text)"
        )
    };
    assert_eq!(warnings(kafka, &[]), [said(4)]);
    assert_eq!(
        warnings(&format!("{kafka}topic = \"{{namespace}}.x\"\n"), &[]),
        [said(6)]
    );
    for bounded in ["allow = [\"orders\"]", "topic = \"shop.{topic}\""] {
        assert!(
            warnings(&format!("{kafka}{bounded}\n"), &[]).is_empty(),
            "{bounded}"
        );
    }
}

#[test]
fn several_destinations_without_a_route_are_warned_about() {
    let two = with("[[destination]]\nname = \"a\"\ntype = \"log\"");
    assert_eq!(
        warnings(&two, &[]),
        [
            "p.toml:5: 2 destinations and no [[route]]: events that name no destination are held as unrouted (add a \
             [[route]])"
        ]
    );
    let dead = warnings(&two, &[("PILLARBOX_DISPATCH_UNROUTED", "dead")]);
    assert!(dead[0].contains("become dead"), "{dead:?}");
    assert!(warnings(&format!("{two}[[route]]\nto = \"a\"\n"), &[]).is_empty());
}

#[test]
fn an_unsupported_database_is_rejected_without_its_password() {
    let error = wrong(&format!("database.url = \"mysql://u:hunter2@h/d\"\n{LOG}"));
    assert!(
        error.starts_with("p.toml:1: unsupported database `mysql://`"),
        "{error}"
    );
    assert!(!error.contains("hunter2"), "{error}");
}

#[test]
fn a_database_from_a_missing_variable_names_the_variable() {
    let error = wrong(&format!(
        "[database]\nurl = {{ env = \"PILLARBOX_NO_SUCH\" }}\n{LOG}"
    ));
    assert_eq!(
        error,
        "p.toml:2: `url` comes from the environment variable PILLARBOX_NO_SUCH, which is not set"
    );
}

#[test]
fn a_remote_address_must_be_allowed() {
    let error = wrong(&with("[http]\nlisten = \"0.0.0.0:7700\""));
    assert!(
        error.starts_with("p.toml:3: cannot listen on 0.0.0.0:7700: other machines can reach it"),
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
        ("PILLARBOX_DATABASE_URL", "postgres://u:hunter2@localhost/d"),
        ("PILLARBOX_DISPATCH_LEASE", "2m"),
        ("PILLARBOX_DISPATCH_BATCH", "7"),
        ("PILLARBOX_DISPATCH_NAMESPACES", "a,b"),
        ("PILLARBOX_DISPATCH_UNROUTED", "delete"),
        ("PILLARBOX_DISPATCH_LANE_RANGES", "8"),
        ("PILLARBOX_DISPATCH_HEARTBEAT", "2s"),
        ("PILLARBOX_DISPATCH_SWEEP_INTERVAL", "3s"),
        ("PILLARBOX_HTTP_LISTEN", "127.0.0.1:1"),
        ("PILLARBOX_RETRY_MAX_ATTEMPTS", "unlimited"),
        ("PILLARBOX_LIMITS_MAX_PAYLOAD", "1MiB"),
    ];
    let (config, warnings) = good_with(&with("[dispatch]\nlease = \"61s\""), &variables);
    assert!(warnings.is_empty());
    assert_eq!(
        config.databases[0].url.to_string(),
        "postgres://u@localhost:5432/d?sslmode=prefer"
    );
    assert_eq!(config.dispatch.lease, Duration::from_secs(120));
    assert_eq!(config.dispatch.batch, 7);
    assert_eq!(config.dispatch.max_attempts, u32::MAX);
    assert_eq!(
        (config.dispatch.unrouted, config.dispatch.lane_ranges),
        (Unrouted::Delete, 8)
    );
    assert_eq!(config.dispatch.heartbeat, Duration::from_secs(2));
    assert_eq!(config.dispatch.sweep_interval, Duration::from_secs(3));
    assert_eq!(
        config.dispatch.scope.names(),
        Some(vec!["a".to_owned(), "b".to_owned()])
    );
    assert_eq!(config.http.listen.port(), 1);
    assert_eq!(config.limits.payload, 1024 * 1024);
    assert_eq!(config.destinations[0].policy.retry.limit(), None);
}

#[test]
fn without_namespaces_every_namespace_is_served() {
    for dispatch in ["", "[dispatch]\nnamespaces = []"] {
        assert_eq!(good(&with(dispatch)).dispatch.scope.names(), None, "{dispatch:?}");
    }
}

#[test]
fn an_invalid_variable_is_named() {
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
            "environment variable PILLARBOX_HTTP_ALLOW_REMOTE: `http.allow_remote`: expected `true` or `false`",
        ),
        (
            "PILLARBOX_DISPATCH_BATCH",
            "many",
            "environment variable PILLARBOX_DISPATCH_BATCH: `dispatch.batch`: expected a whole number of at least 0",
        ),
    ] {
        let error = wrong_with(&with(""), &[(name, value)]);
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn risky_settings_are_warned_about() {
    assert_eq!(
        warnings(
            &with("[retry]\nmax_attempts = 2"),
            &[("PILLARBOX_DISPATCH_LEESE", "1s")]
        ),
        [
            "environment variable PILLARBOX_DISPATCH_LEESE: unknown variable (did you mean PILLARBOX_DISPATCH_LEASE?)",
            "p.toml:3: `max_attempts` is 2: crashes of a worker may make an event dead (use 3 or more)",
        ]
    );
    assert!(warnings(&with("[retry]\nmax_attempts = 3"), &[]).is_empty());
}

#[test]
fn a_destination_inherits_general_settings() {
    let retry = "[retry]\nbase = \"2s\"\nmax = \"4s\"\nmax_attempts = 7\njitter = \"none\"\n";
    let own = "[[destination]]\nname = \"own\"\ntype = \"log\"\n[destination.retry]\nsteps = [\"9s\"]\n";
    let config = good(&with(&format!("{retry}{own}")));
    let delays = |index: usize| -> Vec<u64> {
        let policy = &config.destinations[index].policy.retry;
        (1..7)
            .filter_map(|attempts| policy.delay(attempts, 0.5))
            .map(|delay| delay.as_secs())
            .collect()
    };
    assert_eq!(delays(0), [9; 6]);
    assert_eq!(delays(1), [2, 4, 4, 4, 4, 4]);
    assert_eq!(config.destinations[0].policy.retry.limit(), Some(7));
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
fn the_message_format_is_set_beside_the_keys_of_the_sink() {
    let keys = "format = \"cloudevents\"\nsource = \"/{topic}\"\nmax_decompressed = \"2MiB\"\n";
    let config = good(&with(&format!(
        "[[destination]]\nname = \"hook\"\ntype = \"webhook\"\nurl = \"http://h/\"\n{keys}"
    )));
    let [hook, log] = &config.destinations[..] else {
        panic!("there are two: {:?}", config.destinations);
    };
    assert_eq!(hook.message.format, message::Format::CloudEvents);
    assert_eq!(log.message, message::Config::default());
    let shown = config.effective();
    assert_eq!(
        shown["destinations"][0]["message"],
        serde_json::json!({
            "format": "cloudevents", "source": "/{topic}", "compressed": false, "max_decompressed": 2 * 1024 * 1024,
        })
    );
}

#[test]
fn the_effective_configuration_shows_no_secrets() {
    let hook = "[[destination]]\nname = \"hook\"\ntype = \"webhook\"\nurl = \"http://h/hunter2\"\nbearer = \"hunter2\"\n";
    let route = "[[route]]\ntopic = \"orders.*\"\nto = \"hook\"\n";
    let config = good(&format!(
        "database.url = \"postgres://u:hunter2@h/d?password=hunter2\"\n{hook}{route}{LOG}"
    ));
    let shown = config.effective();
    assert!(!shown.to_string().contains("hunter2"), "{shown}");
    assert!(!format!("{config:?}").contains("hunter2"), "{config:?}");
    assert_eq!(
        shown["databases"][0]["url"],
        "postgres://u@h:5432/d?sslmode=prefer"
    );
    assert_eq!(shown["dispatch"]["lease"], "1m");
    assert_eq!(shown["destinations"][0]["sink"]["type"], "webhook");
    assert_eq!(
        shown["routes"][0],
        serde_json::json!({ "topic": ["orders.*"], "to": ["hook"] })
    );
}

#[test]
fn every_error_in_a_destination_has_its_line() {
    for (keys, expected) in [
        (
            "rate = \"fast\"",
            "p.toml:5: `destination.rate`: expected a rate such as \"100/s\", \"30/m\" or { per_second = 100, burst = 20 }, \
             found string \"fast\"",
        ),
        (
            "rate = { per_second = 5, brust = 1 }",
            "p.toml:5: unknown key `brust` (did you mean `burst`?)",
        ),
        (
            "rate = \"0/s\"",
            "p.toml:5: `rate` must be more than 0 (to send nothing, pause the destination)",
        ),
        (
            "burst = 5",
            "p.toml:5: `burst` needs a `rate`, such as \"100/s\" (to limit attempts in flight, set `concurrency`)",
        ),
        (
            "rate = { per_second = 5, burst = 1 }\nburst = 5",
            "p.toml:6: `burst` is set twice (remove one)",
        ),
        (
            "rate = \"5/s\"\nburst = 0",
            "p.toml:6: `burst` must be at least 1: with 0 nothing is sent",
        ),
        (
            "on_dead = \"stop\"",
            "p.toml:5: `destination.on_dead`: unknown value `stop` (known: `block` and `continue`)",
        ),
        (
            "fair_by = \"tenent\"",
            "p.toml:5: `destination.fair_by`: unknown value `tenent` (did you mean `tenant`?)",
        ),
        (
            "pipelined = \"yes\"",
            "p.toml:5: `destination.pipelined`: expected `true` or `false`, found string \"yes\"",
        ),
        (
            "format = \"cloudevent\"",
            "p.toml:5: `destination.format`: unknown value `cloudevent` (did you mean `cloudevents`?)",
        ),
        (
            "source = \"/{nmespace}\"",
            "p.toml:5: `destination.source`: `{nmespace}` is unknown; the names are id, namespace, topic, event_type, \
             event_version, aggregate_type, aggregate_id, tenant_id, ordering_key, dedupe_key, severity, destination, and \
             header.NAME",
        ),
        (
            "max_decompressed = \"64MB\"",
            "p.toml:5: `destination.max_decompressed`: expected a size such as \"16MiB\", \"64KiB\" or a number of bytes, \
             found string \"64MB\"",
        ),
        (
            "compresed = true",
            "p.toml:5: unknown key `compresed` (did you mean `compressed`?)",
        ),
    ] {
        let text = with(&format!("[[destination]]\nname = \"a\"\ntype = \"log\"\n{keys}"));
        assert_eq!(wrong(&text), expected, "{keys}");
    }
    assert_eq!(
        wrong(&with("[[destination]]\nname = \"unrouted\"\ntype = \"log\"")),
        "p.toml:3: `unrouted` is reserved for events that no route matches (choose another name)"
    );
}

#[test]
fn every_error_in_a_route_has_its_line() {
    for (keys, expected) in [
        (
            "topic = [\"orders.*\",\n\"o*\"]",
            "p.toml:5: `topic`: invalid pattern `o*` (use `*` for anything, `orders.*` for a prefix, or an exact name)",
        ),
        (
            "topic = []",
            "p.toml:4: `route.topic`: the list is empty (add a value, or remove the key)",
        ),
        (
            "severity = 5",
            "p.toml:4: `route.severity`: expected a text or a list of texts, found integer `5`",
        ),
        (
            "tenant = \"*\"",
            "p.toml:4: `tenant`: `*` is not a UUID (remove `tenant` to match all tenants)",
        ),
        (
            "tenant = [\"0190c2a4-8f4e-7c3a-9d51-0f2b6d1c7e55\",\n\"acme\"]",
            "p.toml:5: `tenant`: `acme` is not a UUID (remove `tenant` to match all tenants)",
        ),
        ("database = \"bling\"", "p.toml:4: unknown database `bling`"),
        (
            "timeout = \"40s\"",
            "p.toml:4: `dispatch.lease` (1m) must be at least twice its `timeout` (40s)",
        ),
        ("timeout = \"0s\"", "p.toml:4: `timeout` must be longer than 0"),
        (
            "on_dead = \"contine\"",
            "p.toml:4: `route.on_dead`: unknown value `contine` (did you mean `continue`?)",
        ),
        (
            "retry = { base = \"2s\", max = \"1s\" }",
            "p.toml:4: `max` must not be shorter than `base`",
        ),
        (
            "agregate_type = \"order\"",
            "p.toml:4: unknown key `agregate_type` (did you mean `aggregate_type`?)",
        ),
    ] {
        let text = with(&format!("[[route]]\nto = \"log\"\n{keys}"));
        assert_eq!(wrong(&text), expected, "{keys}");
    }
    assert_eq!(
        wrong(&with("[[route]]\nto = [\"log\",\n\"lgo\"]")),
        "p.toml:4: unknown destination `lgo` (did you mean `log`?)"
    );
}

#[test]
fn a_route_has_lists_of_conditions_and_several_destinations() {
    let tenant = "0190c2a4-8f4e-7c3a-9d51-0f2b6d1c7e55";
    let config = good(&with(&format!(
        "[[destination]]\nname = \"hook\"\ntype = \"webhook\"\nurl = \"http://h/\"\ntimeout = \"3s\"\n\
         [destination.retry]\nmax_attempts = 9\n\
         [[route]]\ntopic = [\"orders.*\", \"carts\"]\nseverity = \"high\"\ntenant = \"{tenant}\"\n\
         to = [\"hook\", \"log\"]\ntimeout = \"7s\"\non_dead = \"continue\"\n[route.retry]\nsteps = [\"5s\"]\n"
    )));
    let targets = &config.routes[0].targets;
    let names: Vec<&str> = targets.iter().map(|target| target.destination.as_str()).collect();
    assert_eq!(names, ["hook", "log"]);
    assert!(targets[0].topic.matches(Some("orders.new")) && targets[0].topic.matches(Some("carts")));
    assert!(!targets[0].topic.matches(Some("bills")) && !targets[0].severity.matches(Some("low")));
    assert_eq!(targets[0].tenant, [tenant.parse::<uuid::Uuid>().expect("a UUID")]);
    assert_eq!(targets[0].overrides.on_dead, Some(OnDead::Continue));
    assert_eq!(targets[0].overrides.timeout, Some(Duration::from_secs(7)));
    // A route's schedule inherits from the destination, and that one from [retry].
    let limit = |index: usize| {
        targets[index]
            .overrides
            .retry
            .as_ref()
            .and_then(RetryPolicy::limit)
    };
    assert_eq!((limit(0), limit(1)), (Some(9), Some(25)));
    // The sink's timeout is the longest one of its routes.
    let SinkConfig::Webhook(webhook) = &config.destinations[0].sink else {
        panic!("it is a webhook: {:?}", config.destinations[0].sink);
    };
    assert_eq!(webhook.timeout, Duration::from_secs(7));
    assert_eq!(config.destinations[0].policy.timeout, Duration::from_secs(3));
}

#[test]
fn a_route_without_overrides_changes_nothing() {
    let config = good(&with("[[route]]\nto = \"log\""));
    assert_eq!(
        config.routes[0].targets[0].overrides,
        pillarbox_dispatch::Overrides::default()
    );
}

#[test]
fn a_destinations_settings_are_applied() {
    let config = good(&with(
        "[[destination]]\nname = \"a\"\ntype = \"log\"\nrate = \"120/m\"\nburst = 5\non_dead = \"continue\"\n\
         pipelined = true\nfair_by = \"tenant\"\n\
         [[destination]]\nname = \"b\"\ntype = \"log\"\nrate = { per_second = 2.5 }\n\
         [dispatch]\nunrouted = \"dead\"\nlane_ranges = 8\nheartbeat = \"2s\"\nsweep_interval = \"3s\"\n",
    ));
    let [a, b, _] = config.destinations.as_slice() else {
        panic!("three destinations: {config:?}");
    };
    let rate = |per_second, burst| Some(Rate { per_second, burst });
    assert_eq!((a.rate, b.rate), (rate(2.0, 5), rate(2.5, 3)));
    assert_eq!((a.policy.on_dead, a.policy.pipelined), (OnDead::Continue, true));
    assert!(a.fair_by_tenant && !b.fair_by_tenant);
    assert_eq!(config.dispatch.unrouted, Unrouted::Dead);
    assert_eq!(config.dispatch.lane_ranges, 8);
    assert_eq!(config.dispatch.heartbeat, Duration::from_secs(2));
    assert_eq!(config.dispatch.sweep_interval, Duration::from_secs(3));
}

/// Two databases, a destination and this.
fn with_two(more: &str) -> String {
    format!(
        "[[database]]\nname = \"shop\"\nurl = \"shop.db\"\n[[database]]\nname = \"bank\"\nurl = \"bank.db\"\n{more}\n{LOG}"
    )
}

#[test]
fn several_databases_have_routes_of_their_own() {
    let config = good(&with_two(
        "[[destination]]\nname = \"a\"\ntype = \"log\"\n\
         [[route]]\ndatabase = \"bank\"\nto = \"a\"\n[[route]]\nto = \"log\"",
    ));
    let routes = |name: &str| -> Vec<&str> {
        let targets = config.routes_for(name);
        targets.map(|target| target.destination.as_str()).collect()
    };
    assert_eq!(routes("shop"), ["log"]);
    assert_eq!(routes("bank"), ["a", "log"]);
}

#[test]
fn every_error_about_several_databases_has_its_line() {
    let database = |keys: &str| with_two(&format!("[[database]]\n{keys}"));
    for (text, expected) in [
        (database("url = \"c.db\""), "p.toml:7: missing key `name`"),
        (database("name = \"c\""), "p.toml:7: missing key `url`"),
        (
            database("name = \"shop\"\nurl = \"c.db\""),
            "p.toml:8: duplicate database name `shop` (choose another)",
        ),
        (
            database("name = \"c\"\nurl = \"./bank.db\""),
            "p.toml:9: databases `bank` and `c` are the same outbox (remove one, or set another `schema`)",
        ),
        (
            database("name = \"a/b\"\nurl = \"c.db\""),
            "p.toml:8: `name` must consist of letters, digits, `-` and `_`, such as \"billing\"",
        ),
        (
            database("name = \"c\"\nurl = \"c.db\"\nmax_connections = 1"),
            "p.toml:10: `max_connections` must be at least 2: one to claim and one to settle",
        ),
        (
            with_two("[[route]]\ndatabase = \"shpo\"\nto = \"log\""),
            "p.toml:8: unknown database `shpo` (did you mean `shop`?)",
        ),
        (
            with_two("[[route]]\ndatabase = \"bank\"\nto = \"log\""),
            "p.toml:1: no route for database `shop`: every route names another (add one, or remove `database` from one)",
        ),
    ] {
        assert_eq!(wrong(&text), expected, "{text}");
    }
}

#[test]
fn two_schemas_of_one_database_are_two_outboxes() {
    let two = |schema: &str| {
        format!(
            "[[database]]\nname = \"a\"\nurl = \"postgres://u@h/d\"\n\
             [[database]]\nname = \"b\"\nurl = \"postgres://v@h:5432/d\"\nschema = \"{schema}\"\n{LOG}"
        )
    };
    assert_eq!(good(&two("other")).databases.len(), 2);
    let error = wrong(&two("pillarbox"));
    assert!(error.contains("`a` and `b` are the same outbox"), "{error}");
}

#[test]
fn a_variable_for_one_database_is_rejected_if_there_are_several() {
    let error = wrong_with(&with_two(""), &[("PILLARBOX_DATABASE_URL", "c.db")]);
    assert!(
        error.starts_with(
            "environment variable PILLARBOX_DATABASE_URL: several databases are configured, and it is unclear which one \
             this url is for"
        ),
        "{error}"
    );
}

#[test]
fn a_template_with_an_unknown_name_is_rejected_with_its_line() {
    for (sink, keys) in [
        (
            "type = \"rabbitmq\"\nurl = \"amqp://h\"\nexchange = \"e\"",
            &["routing_key"][..],
        ),
        ("type = \"kafka\"\nbrokers = \"h:9092\"", &["topic", "key"]),
        ("type = \"nats\"\nurl = \"nats://h\"", &["subject"]),
        ("type = \"redis\"\nurl = \"redis://h\"", &["stream"]),
        ("type = \"webhook\"\nurl = \"http://h/\"", &[]),
    ] {
        let templates = keys.iter().map(|key| {
            (
                format!("{key} = \"{{event_tpye}}\""),
                format!("`{key}`: `{{event_tpye}}` is unknown; the names are id, namespace,"),
            )
        });
        let headers = (
            "headers = { x-source = \"shop\", x-type = \"{event_tpye}\" }".to_owned(),
            "`headers`: `x-type`: `{event_tpye}` is unknown; the names are id, namespace,".to_owned(),
        );
        for (written, said) in templates.chain([headers]) {
            let error = wrong(&with(&format!(
                "[[destination]]\nname = \"a\"\n{sink}\n{written}"
            )));
            let line = sink.lines().count() + 4;
            assert!(
                error.starts_with(&format!("p.toml:{line}: {said}")),
                "{sink}\n{written}: {error}"
            );
        }
    }
}
