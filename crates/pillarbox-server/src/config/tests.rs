//! What a configuration says, and what is said of a wrong one.

mod adopt;

use std::time::Duration;

use pillarbox::RetryPolicy;
use pillarbox_dispatch::{OnDead, Unrouted};

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
    assert_eq!(config.routes.len(), 2);
    assert_eq!(config.adopt.len(), 1);
    assert_eq!(
        config.dispatch,
        Settings {
            max_attempts: 25,
            ..Settings::default()
        }
    );
    assert_eq!(config.destinations[2].policy.retry.limit(), Some(10));
    assert_eq!(config.routes[0].ways.len(), 1, "that of the adopted table");
    assert_eq!(config.routes[1].ways.len(), 2);
}

#[test]
fn what_is_not_said_has_its_default() {
    let config = good(&with(""));
    assert_eq!(config.dispatch, Settings::default());
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
            "p.toml:5: unknown key `colour`; known are `name`, `timeout`, `concurrency`, `rate`, `burst`, `on_dead`, \
             `pipelined`, `fair_by`, `retry`, \
             `format`, `source`, `compressed` and `max_decompressed`",
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
            "[dispatch]\nunrouted = \"forget\"",
            "p.toml:3: `dispatch.unrouted`: unknown value `forget`; known are `hold`, `discard` and `dead`",
        ),
        (
            "[dispatch]\nlanes = 0",
            "p.toml:3: `dispatch.lanes` must be at least 1 and at most 4096",
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
        ("PILLARBOX_DISPATCH_UNROUTED", "delete"),
        ("PILLARBOX_DISPATCH_LANES", "8"),
        ("PILLARBOX_DISPATCH_HEARTBEAT", "2s"),
        ("PILLARBOX_DISPATCH_SWEEP_INTERVAL", "3s"),
        ("PILLARBOX_HTTP_LISTEN", "127.0.0.1:1"),
        ("PILLARBOX_RETRY_MAX_ATTEMPTS", "unlimited"),
        ("PILLARBOX_LIMITS_MAX_PAYLOAD", "1MiB"),
    ];
    let overrides = environment(&variables);
    let (config, warnings) = resolve(&with("[dispatch]\nlease = \"61s\""), &overrides).expect("good");
    assert!(warnings.is_empty());
    assert_eq!(config.databases[0].target.to_string(), "postgres://u:***@h/d");
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
fn what_a_message_looks_like_is_said_beside_the_keys_of_the_sink() {
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
fn what_is_in_force_is_shown_without_secrets() {
    let hook = "[[destination]]\nname = \"hook\"\ntype = \"webhook\"\nurl = \"http://h/hunter2\"\nbearer = \"hunter2\"\n";
    let route = "[[route]]\ntopic = \"orders.*\"\nto = \"hook\"\n";
    let config = good(&format!(
        "database.url = \"postgres://u:hunter2@h/d?password=hunter2\"\n{hook}{route}{LOG}"
    ));
    let shown = config.effective();
    assert!(!shown.to_string().contains("hunter2"), "{shown}");
    assert!(!format!("{config:?}").contains("hunter2"), "{config:?}");
    assert_eq!(shown["databases"][0]["url"], "postgres://u:***@h/d?password=***");
    assert_eq!(shown["dispatch"]["lease"], "1m");
    assert_eq!(shown["destinations"][0]["sink"]["type"], "webhook");
    assert_eq!(
        shown["routes"][0],
        serde_json::json!({ "topic": ["orders.*"], "to": ["hook"] })
    );
}

#[test]
fn every_mistake_in_a_destination_is_said_with_its_line() {
    for (keys, expected) in [
        (
            "rate = \"fast\"",
            "p.toml:5: `destination.rate`: expected a rate such as \"100/s\", \"30/m\" or { per_second = 100, burst = 20 }, \
             found string \"fast\"",
        ),
        (
            "rate = { per_second = 5, brust = 1 }",
            "p.toml:5: unknown key `brust`; did you mean `burst`?",
        ),
        (
            "rate = \"0/s\"",
            "p.toml:5: `rate` must be more than nothing; to send nothing, pause the destination",
        ),
        (
            "burst = 5",
            "p.toml:5: `burst` needs a `rate`, such as \"100/s\"; to limit how many are under way, set `concurrency`",
        ),
        (
            "rate = { per_second = 5, burst = 1 }\nburst = 5",
            "p.toml:6: `burst` is said twice; remove one of them",
        ),
        (
            "rate = \"5/s\"\nburst = 0",
            "p.toml:6: `burst` must be at least 1: nothing could ever be sent",
        ),
        (
            "on_dead = \"stop\"",
            "p.toml:5: `destination.on_dead`: unknown value `stop`; known are `block` and `continue`",
        ),
        (
            "fair_by = \"tenent\"",
            "p.toml:5: `destination.fair_by`: unknown value `tenent`; did you mean `tenant`?",
        ),
        (
            "pipelined = \"yes\"",
            "p.toml:5: `destination.pipelined`: expected a boolean, found string \"yes\"",
        ),
        (
            "format = \"cloudevent\"",
            "p.toml:5: `destination.format`: unknown value `cloudevent`; did you mean `cloudevents`?",
        ),
        (
            "source = \"/{nmespace}\"",
            "p.toml:5: `destination.source`: `{nmespace}` is not known; the names are id, namespace, topic, event_type, \
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
            "p.toml:5: unknown key `compresed`; did you mean `compressed`?",
        ),
    ] {
        let text = with(&format!("[[destination]]\nname = \"a\"\ntype = \"log\"\n{keys}"));
        assert_eq!(wrong(&text), expected, "{keys}");
    }
    assert_eq!(
        wrong(&with("[[destination]]\nname = \"unrouted\"\ntype = \"log\"")),
        "p.toml:3: `unrouted` is where events wait that no route leads anywhere; choose another name"
    );
}

#[test]
fn every_mistake_in_a_route_is_said_with_its_line() {
    for (keys, expected) in [
        (
            "topic = [\"orders.*\",\n\"o*\"]",
            "p.toml:5: `topic`: `o*` is no pattern; write `*` for anything, `orders.*` for what begins with \"orders.\", or \
             the name itself",
        ),
        (
            "topic = []",
            "p.toml:4: `route.topic`: the list is empty; write what is meant, or remove the key",
        ),
        (
            "severity = 5",
            "p.toml:4: `route.severity`: expected a text or a list of texts, found integer `5`",
        ),
        (
            "tenant = \"*\"",
            "p.toml:4: `tenant`: `*` is no UUID; a route for all tenants has no `tenant`",
        ),
        (
            "tenant = [\"0190c2a4-8f4e-7c3a-9d51-0f2b6d1c7e55\",\n\"acme\"]",
            "p.toml:5: `tenant`: `acme` is no UUID; a route for all tenants has no `tenant`",
        ),
        ("database = \"bling\"", "p.toml:4: there is no database `bling`"),
        (
            "timeout = \"40s\"",
            "p.toml:4: `dispatch.lease` (1m) must be at least twice its `timeout` (40s)",
        ),
        (
            "timeout = \"0s\"",
            "p.toml:4: `timeout` must be longer than nothing",
        ),
        (
            "on_dead = \"contine\"",
            "p.toml:4: `route.on_dead`: unknown value `contine`; did you mean `continue`?",
        ),
        (
            "retry = { base = \"2s\", max = \"1s\" }",
            "p.toml:4: `max` must not be shorter than `base`",
        ),
        (
            "agregate_type = \"order\"",
            "p.toml:4: unknown key `agregate_type`; did you mean `aggregate_type`?",
        ),
    ] {
        let text = with(&format!("[[route]]\nto = \"log\"\n{keys}"));
        assert_eq!(wrong(&text), expected, "{keys}");
    }
    assert_eq!(
        wrong(&with("[[route]]\nto = [\"log\",\n\"lgo\"]")),
        "p.toml:4: there is no destination `lgo`; did you mean `log`?"
    );
}

#[test]
fn a_route_may_want_one_of_many_and_lead_to_several_places() {
    let tenant = "0190c2a4-8f4e-7c3a-9d51-0f2b6d1c7e55";
    let config = good(&with(&format!(
        "[[destination]]\nname = \"hook\"\ntype = \"webhook\"\nurl = \"http://h/\"\ntimeout = \"3s\"\n\
         [destination.retry]\nmax_attempts = 9\n\
         [[route]]\ntopic = [\"orders.*\", \"carts\"]\nseverity = \"high\"\ntenant = \"{tenant}\"\n\
         to = [\"hook\", \"log\"]\ntimeout = \"7s\"\non_dead = \"continue\"\n[route.retry]\nsteps = [\"5s\"]\n"
    )));
    let ways = &config.routes[0].ways;
    let names: Vec<&str> = ways.iter().map(|way| way.destination.as_str()).collect();
    assert_eq!(names, ["hook", "log"]);
    assert!(ways[0].topic.matches(Some("orders.new")) && ways[0].topic.matches(Some("carts")));
    assert!(!ways[0].topic.matches(Some("bills")) && !ways[0].severity.matches(Some("low")));
    assert_eq!(ways[0].tenant, [tenant.parse::<uuid::Uuid>().expect("a UUID")]);
    assert_eq!(ways[0].overrides.on_dead, Some(OnDead::Continue));
    assert_eq!(ways[0].overrides.timeout, Some(Duration::from_secs(7)));
    // What the route's schedule does not say comes from the destination, and what that does not say from [retry].
    let limit = |index: usize| ways[index].overrides.retry.as_ref().and_then(RetryPolicy::limit);
    assert_eq!((limit(0), limit(1)), (Some(9), Some(25)));
    // The sink must not give up before the most patient route does.
    let SinkConfig::Webhook(webhook) = &config.destinations[0].sink else {
        panic!("it is a webhook: {:?}", config.destinations[0].sink);
    };
    assert_eq!(webhook.timeout, Duration::from_secs(7));
    assert_eq!(config.destinations[0].policy.timeout, Duration::from_secs(3));
}

#[test]
fn a_route_that_says_nothing_otherwise_changes_nothing() {
    let config = good(&with("[[route]]\nto = \"log\""));
    assert_eq!(
        config.routes[0].ways[0].overrides,
        pillarbox_dispatch::Overrides::default()
    );
}

#[test]
fn what_a_destination_says_is_what_it_gets() {
    let config = good(&with(
        "[[destination]]\nname = \"a\"\ntype = \"log\"\nrate = \"120/m\"\nburst = 5\non_dead = \"continue\"\n\
         pipelined = true\nfair_by = \"tenant\"\n\
         [[destination]]\nname = \"b\"\ntype = \"log\"\nrate = { per_second = 2.5 }\n\
         [dispatch]\nunrouted = \"dead\"\nlanes = 8\nheartbeat = \"2s\"\nsweep_interval = \"3s\"\n",
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
        let ways = config.routes_for(name);
        ways.map(|way| way.destination.as_str()).collect()
    };
    assert_eq!(routes("shop"), ["log"]);
    assert_eq!(routes("bank"), ["a", "log"]);
}

#[test]
fn every_mistake_about_several_databases_is_said_with_its_line() {
    let database = |keys: &str| with_two(&format!("[[database]]\n{keys}"));
    for (text, expected) in [
        (database("url = \"c.db\""), "p.toml:7: the key `name` is missing"),
        (database("name = \"c\""), "p.toml:7: the key `url` is missing"),
        (
            database("name = \"shop\"\nurl = \"c.db\""),
            "p.toml:8: there are two databases named `shop`; names are unique",
        ),
        (
            database("name = \"c\"\nurl = \"./bank.db\""),
            "p.toml:9: the databases `bank` and `c` are the same outbox; remove one, or name another `schema`",
        ),
        (
            database("name = \"a/b\"\nurl = \"c.db\""),
            "p.toml:8: `name` must be letters, digits, `-` and `_`, such as \"billing\"",
        ),
        (
            database("name = \"c\"\nurl = \"c.db\"\nmax_connections = 1"),
            "p.toml:10: `max_connections` must be at least 2: one to claim, one to settle",
        ),
        (
            with_two("[[route]]\ndatabase = \"shpo\"\nto = \"log\""),
            "p.toml:8: there is no database `shpo`; did you mean `shop`?",
        ),
        (
            with_two("[[route]]\ndatabase = \"bank\"\nto = \"log\""),
            "p.toml:1: no route is for the database `shop`: each names another; add one, or remove `database` from one",
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
fn a_variable_for_one_database_is_refused_where_there_are_several() {
    let error = wrong_with(&with_two(""), &[("PILLARBOX_DATABASE_URL", "c.db")]);
    assert!(
        error.starts_with(
            "environment variable PILLARBOX_DATABASE_URL: which of the databases should have this url?"
        ),
        "{error}"
    );
}

#[test]
fn a_template_with_an_unknown_name_is_refused_with_its_line() {
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
                format!("`{key}`: `{{event_tpye}}` is not known; the names are id, namespace,"),
            )
        });
        let headers = (
            "headers = { x-source = \"shop\", x-type = \"{event_tpye}\" }".to_owned(),
            "`headers`: `x-type`: `{event_tpye}` is not known; the names are id, namespace,".to_owned(),
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
