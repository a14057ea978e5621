//! `[[adopt]]`

use pillarbox::{Jitter, Schedule};
use pillarbox_dispatch::Pattern;
use pillarbox_store::stores::postgres::adopt::{
    Counts, ErrorText, LayoutError, Payload, Status, built_in, built_ins,
};

use super::*;

/// A PostgreSQL database, a destination and this.
fn with(more: &str) -> String {
    format!("database.url = \"postgres://localhost/shop\"\n{more}\n{LOG}")
}

/// A second destination.
const HOOK: &str = "[[destination]]\nname = \"hook\"\ntype = \"log\"\n";

fn namespaces(config: &Config, route: usize) -> Vec<Pattern> {
    config.routes[route].targets[0].namespace.0.clone()
}

#[test]
fn a_built_in_layout_needs_only_its_name_and_the_namespaces_of_its_rows() {
    for name in built_ins() {
        let has_column = built_in(name).expect("it is known").namespace.is_some();
        let namespaces = if has_column { "namespaces = \"shop\"" } else { "" };
        let config = good(&with(&format!("[[adopt]]\nlayout = \"{name}\"\n{namespaces}")));
        let adopt = &config.adopt[0];
        assert_eq!(adopt.table.name, *name);
        assert_eq!(Some(&adopt.table.layout), built_in(name).as_ref(), "{name}");
        assert_eq!(
            adopt.table.prune, None,
            "nothing is deleted unless the configuration says so"
        );
        assert_eq!(adopt.database, "default");
    }
}

#[test]
fn a_system_keeps_its_habits() {
    let config = good(&with(
        "[[adopt]]\nlayout = \"arap\"\n[[adopt]]\nlayout = \"order-service\"\n[[adopt]]\nlayout = \"family-hub\"",
    ));
    let seen: Vec<(u64, usize)> = config
        .adopt
        .iter()
        .map(|adopt| (adopt.table.poll.as_secs(), adopt.table.batch))
        .collect();
    assert_eq!(seen, [(30, 100), (5, 10), (5, 100)]);
    let retry = |route: usize| {
        config.routes[route].targets[0]
            .overrides
            .retry
            .clone()
            .expect("its own")
    };
    assert_eq!(retry(0).limit(), Some(3));
    assert_eq!(retry(1).limit(), Some(5));
    assert_eq!(retry(1).spread(), Jitter::None);
    assert_eq!(retry(2).limit(), None, "for ever");
}

#[test]
fn what_is_written_beside_a_layout_holds_instead() {
    let config = good(&with(
        "[[adopt]]\nlayout = \"arap\"\nname = \"papers\"\ntable = \"public.messages\"\nid = \"key\"\nerror = \"\"\n\
         time_zone = \"Europe/Berlin\"\ncontent_type = \"application/vnd.arap+json\"\npoll = \"2s\"\nbatch = 7\nprune = \"30 days\"\n\
         [adopt.retry]\nmax_attempts = 5",
    ));
    let table = &config.adopt[0].table;
    assert_eq!(table.name, "papers");
    assert_eq!(table.layout.table, "public.messages");
    assert_eq!(table.layout.id, "key");
    assert_eq!(table.layout.payload, Payload::Column("Content".to_owned()));
    assert_eq!(table.layout.error, None, "an empty name: there is no such column");
    assert_eq!(table.layout.time_zone.0, "Europe/Berlin");
    assert_eq!(
        table.layout.content_type.as_deref(),
        Some("application/vnd.arap+json")
    );
    assert_eq!(table.layout.max_attempts, Some(5), "table and engine agree");
    assert_eq!((table.poll.as_secs(), table.batch), (2, 7));
    assert_eq!(table.prune, Some(Duration::from_secs(30 * 86_400)));
    let retry = config.routes[0].targets[0]
        .overrides
        .retry
        .as_ref()
        .expect("its own");
    assert_eq!(retry.limit(), Some(5));
    assert_eq!(retry.schedule(), &Schedule::Steps(vec![Duration::from_secs(30)]));
}

#[test]
fn a_table_can_be_described_in_full() {
    let config = good(&with(
        "[[adopt]]\ntable = \"shop.mails\"\nid = \"mail_id\"\npayload = [\"subject\", \"text\"]\norder = [\"at\"]\n\
         attempts = \"tries\"\ncounts = \"claims\"\nlocked_at = \"since\"\nstale = \"5m\"\nupdated_at = \"changed\"\n\
         delays = [\"10s\", \"1m\"]\n\
         status = { state_by = \"code\", column = \"state\", pending = \"N\", processing = \"P\", delivered = \"S\" }",
    ));
    let table = &config.adopt[0].table;
    let layout = &table.layout;
    assert_eq!(table.name, "mails");
    assert_eq!(layout.stale, Some(Duration::from_secs(300)));
    assert_eq!(layout.delays.0, [10, 60]);
    assert_eq!(layout.counts, Counts::Claims);
    assert!(matches!(&layout.status, Status::Code { pending, dead: None, .. } if pending == "N"));
    assert_eq!(
        config.routes[0].targets[0].overrides.retry, None,
        "as the destination says"
    );
}

#[test]
fn rows_of_the_table_follow_its_to_and_other_events_their_routes() {
    let config = good(&with("[[adopt]]\nlayout = \"arap\""));
    assert_eq!(namespaces(&config, 0), [Pattern::Exact("arap".to_owned())]);
    assert_eq!(namespaces(&config, 1), [], "the only destination has all others");
    assert_eq!(config.written_routes, 0, "as `config check` counts them");
    let config = good(&with(&format!(
        "{HOOK}[[adopt]]\nlayout = \"arap\"\nto = [\"log\", \"hook\"]\n[[route]]\ntopic = \"x\"\nto = \"log\""
    )));
    let to: Vec<&str> = config
        .routes_for("default")
        .map(|target| target.destination.as_str())
        .collect();
    assert_eq!(to, ["log", "hook", "log"]);
    assert_eq!(config.written_routes, 1);
}

#[test]
fn rows_with_their_own_namespaces_are_routed_by_them() {
    let config = good(&with("[[adopt]]\nlayout = \"modkit\"\nnamespaces = \"*\""));
    assert_eq!(namespaces(&config, 0)[0], Pattern::Any, "its writers are trusted");
    let config = good(&with(
        "[[adopt]]\nlayout = \"modkit\"\nto = \"log\"\nnamespaces = [\"mini-chat\"]\n[[adopt]]\nlayout = \"arap\"",
    ));
    assert_eq!(
        namespaces(&config, 0),
        ["mini-chat", "modkit"].map(|name| Pattern::Exact(name.to_owned()))
    );
}

#[test]
fn a_table_speaks_for_the_namespaces_and_tenants_that_are_written() {
    let tenant = "01990000-0000-7000-8000-000000000001";
    let config = good(&with(&format!(
        "[[adopt]]\nlayout = \"modkit\"\nnamespaces = [\"shop\", \"carts.*\"]\ntenants = \"{tenant}\"\nerror_text = \"full\"\n\
         [[route]]\nto = \"log\""
    )));
    let table = &config.adopt[0].table;
    assert_eq!(table.speaks_for.namespaces, ["shop", "carts.*"]);
    assert_eq!(
        table.speaks_for.tenants,
        [tenant.parse::<uuid::Uuid>().expect("a UUID")]
    );
    assert_eq!(table.error_text, ErrorText::Full);
    let config = good(&with("[[adopt]]\nlayout = \"arap\""));
    assert_eq!(config.adopt[0].table.error_text, ErrorText::Status);
}

#[test]
fn a_table_without_a_schema_is_warned_about() {
    let table = |name: &str| {
        with(&format!(
            "[[adopt]]\nlayout = \"order-service\"\ntable = \"{name}\""
        ))
    };
    let said = super::warnings(&table("outbox"), &[]);
    assert!(
        said[0].contains("`outbox` has no schema, so `search_path` chooses"),
        "{said:?}"
    );
    assert!(super::warnings(&table("orders.outbox"), &[]).is_empty());
}

#[test]
fn every_mistake_in_an_adopted_table_has_its_line() {
    let adopt = |keys: &str| with(&format!("[[adopt]]\n{keys}"));
    for (text, expected) in [
        (
            adopt("layout = \"aarap\""),
            "p.toml:3: there is no layout `aarap`; did you mean `arap`?",
        ),
        (
            adopt("name = \"x\""),
            "p.toml:2: the table is missing: set `layout` to one of `arap`",
        ),
        (
            adopt("layout = \"arap\"\nevnt_type = \"T\""),
            "p.toml:4: unknown key `evnt_type` (did you mean `event_type`?)",
        ),
        (
            adopt("layout = \"arap\"\npol = \"1s\""),
            "p.toml:4: unknown key `pol` (did you mean `poll`?)",
        ),
        (
            adopt("table = \"t\"\nid = \"id\""),
            "p.toml:2: missing key `payload`",
        ),
        (
            adopt("table = \"t\"\nid = \"id\"\npayload = \"p\""),
            "p.toml:2: no column shows the state of a row",
        ),
        (
            adopt("layout = \"order-service\"\ncontent_type = \"text\""),
            "p.toml:2: `content_type` is not a media type (use one such as",
        ),
        (
            adopt("layout = \"arap\"\nid = 5"),
            "p.toml:4: `adopt.id`: expected a text, found integer `5`",
        ),
        (
            adopt("layout = \"arap\"\nbatch = 0"),
            "p.toml:4: `batch` must be at least 1",
        ),
        (
            adopt("layout = \"debezium\"\nprune = \"1 day\""),
            "p.toml:4: `prune` needs `processed_at`, or `updated_at` with a `status`",
        ),
        (
            adopt("layout = \"order-service\"\nprune_dead = \"1 day\""),
            "p.toml:4: `prune_dead` needs a `status` with a code for dead rows, and `updated_at`",
        ),
        (
            adopt("layout = \"arap\"\nkeep_copies = \"1m\""),
            "p.toml:4: `keep_copies` must be at least 10m",
        ),
        (
            adopt("layout = \"modkit\"\nnamespaces = \"*\"\nkeep_copies = \"1h\""),
            "p.toml:5: `keep_copies` needs rows without namespaces of their own",
        ),
        (
            adopt("layout = \"arap\"\nprune_interval = \"1s\""),
            "p.toml:4: `prune_interval` must be at least 1m",
        ),
        (
            adopt("layout = \"arap\"\nto = \"lok\""),
            "p.toml:4: unknown destination `lok` (did you mean `log`?)",
        ),
        (
            adopt("layout = \"arap\"\ndatabase = \"defolt\""),
            "p.toml:4: unknown database `defolt` (did you mean `default`?)",
        ),
        (
            adopt("layout = \"arap\"\nnamespaces = \"x\""),
            "p.toml:4: all its rows have the namespace `arap`: remove `namespaces`",
        ),
        (
            adopt(
                "layout = \"arap\"\nadopt.retry.max_attempts = \"unlimited\"\nretry.max_attempts = \"unlimited\"",
            ),
            "unknown key `adopt`",
        ),
        (
            adopt("layout = \"arap\"\nretry.max_attempts = \"unlimited\""),
            "p.toml:4: `max_attempts` needs a number",
        ),
        (
            adopt("layout = \"arap\"\n[[adopt]]\nlayout = \"arap\""),
            "p.toml:4: there are two adopted tables named `arap`",
        ),
        (
            adopt("layout = \"arap\"\n[[adopt]]\nlayout = \"arap\"\nname = \"b\""),
            "`arap` and `b` are the same table, outbox.outbox_messages",
        ),
        (
            adopt("layout = \"modkit\"\nto = \"log\""),
            "p.toml:2: its rows have their own namespaces: say which ones they may name with `namespaces",
        ),
        (
            adopt("layout = \"modkit\"\n[[route]]\nto = \"log\""),
            "p.toml:2: its rows have their own namespaces",
        ),
        (
            adopt("layout = \"modkit\"\nnamespaces = [\"shop*\"]"),
            "p.toml:4: ",
        ),
        (
            adopt("layout = \"arap\"\ntenants = [\"01990000-0000-7000-8000-000000000001\"]"),
            "p.toml:4: `tenants` needs a column with the tenant",
        ),
        (
            adopt("layout = \"modkit\"\nnamespaces = \"shop\"\ntenants = \"acme\""),
            "p.toml:5: `tenants`: `acme` is not a UUID",
        ),
        (adopt("layout = \"arap\"\nerror_text = \"all\""), "p.toml:4: "),
        (
            format!("{}{HOOK}", adopt("layout = \"arap\"")),
            "p.toml:2: no destination: set `to`",
        ),
        (
            adopt("layout = \"arap\"\nretry.max_attempts = 3\n[[route]]\nto = \"log\""),
            "p.toml:4: `retry` needs `to`",
        ),
        (
            adopt("layout = \"arap\"\n[dispatch]\nnamespaces = [\"shop\"]"),
            "p.toml:2: its rows have the namespace `arap`, which is not in `dispatch.namespaces`",
        ),
    ] {
        let said = wrong(&text);
        assert!(said.contains(expected), "{text}\n{said}");
    }
}

#[test]
fn a_sqlite_file_cannot_adopt_tables() {
    let text = format!("database.url = \"outbox.db\"\n[[adopt]]\nlayout = \"arap\"\n{LOG}");
    assert_eq!(
        wrong(&text),
        "p.toml:2: only PostgreSQL can adopt tables; database `default` is a SQLite file"
    );
}

#[test]
fn with_several_databases_a_table_names_its_database() {
    let two = |keys: &str| {
        format!(
            "[[database]]\nname = \"shop\"\nurl = \"postgres://localhost/shop\"\n[[database]]\nname = \"bank\"\n\
             url = \"postgres://localhost/bank\"\n[[adopt]]\nlayout = \"arap\"\n{keys}\n{LOG}"
        )
    };
    let said = wrong(&two(""));
    assert_eq!(
        said,
        "p.toml:7: `database` is missing: use one of `shop` and `bank`"
    );
    let config = good(&two("database = \"bank\""));
    assert_eq!(config.adopted_in("bank").len(), 1);
    assert_eq!(config.adopted_in("shop").len(), 0);
    let to_arap = |name: &str| {
        config
            .routes_for(name)
            .filter(|target| !target.namespace.0.is_empty())
            .count()
    };
    assert_eq!((to_arap("shop"), to_arap("bank")), (0, 1));
}

#[test]
fn errors_of_the_database_have_their_line() {
    let config = good(&with(
        "[[adopt]]\nlayout = \"arap\"\nerror = \"Err\"\n\
         [[adopt]]\ntable = \"t\"\nid = \"id\"\npayload = \"p\"\n\
         status = { state_by = \"code\", column = \"s\", pending = \"0\", delivered = \"1\" }",
    ));
    let no_column = |key: &str, column: &str| LayoutError::NoColumn {
        key: key.to_owned(),
        column: column.to_owned(),
        table: "t".to_owned(),
        nearest: Some("Error".to_owned()),
    };
    for (adopt, error, line) in [
        (0, no_column("error", "Err"), 4),
        (0, no_column("attempts", "RetryCount"), 3),
        (0, LayoutError::NoTable("t".to_owned()), 3),
        (1, no_column("status.column", "s"), 9),
        (1, LayoutError::NoTable("t".to_owned()), 6),
    ] {
        let said = config.adopt[adopt].finding(&error).line("p.toml");
        assert!(said.starts_with(&format!("p.toml:{line}: ")), "{said}");
        assert!(said.contains(&error.to_string()), "{said}");
    }
}

#[test]
fn the_effective_configuration_has_the_adopted_tables() {
    let config = good(&with("[[adopt]]\nlayout = \"arap\"\nprune = \"1 day\""));
    let shown = &config.effective()["adopt"][0];
    assert_eq!(shown["layout"], "arap");
    assert_eq!(shown["prune"], "1day");
    assert_eq!(shown["table"]["id"], "Id");
}
