//! A daemon whose role is not confined, or lacks a permission on one adopted table.

use uuid::Uuid;

use crate::command::run;
use crate::daemon::Daemon;
use crate::fixture::{Fixture, postgres_url};

const LOG: &str = "[[destination]]\nname = \"log\"\ntype = \"log\"\n[[route]]\nto = \"log\"\n";
const STRICT: &str = "[security]\nstrict = true\n";
const NOT_CONFINED: &str = "the database role is not confined to its duty";

/// A schema with an outbox, a dispatcher, and a table of another owner, which a trigger of that owner watches.
struct Shop {
    fixture: Fixture,
    dispatcher: String,
    owner: String,
}

impl Shop {
    fn new() -> Self {
        let fixture = Fixture::postgres(LOG);
        let [dispatcher, owner] =
            ["dispatcher", "owner"].map(|duty| format!("{duty}_{}", Uuid::new_v4().simple()));
        fixture.run(&["migrate"]).success();
        fixture
            .run(&["grant", "dispatcher", &dispatcher, "--create"])
            .success();
        fixture.sql(&format!(
            "create role {owner};
             create schema {owner} authorization {owner};
             set role {owner};
             create table {owner}.orders (id uuid primary key default gen_random_uuid(), payload jsonb not null, sent_at timestamptz);
             create function {owner}.spy() returns trigger language plpgsql as 'begin return new; end';
             create trigger spy before update on {owner}.orders for each row execute function {owner}.spy();
             grant select, update, delete on {owner}.orders to {dispatcher};
             reset role;
             grant delete on SCHEMA.outbox_events to {dispatcher};
             grant usage on sequence SCHEMA.outbox_seq to {dispatcher}"
        ));
        Self {
            fixture,
            dispatcher,
            owner,
        }
    }

    /// Connects as this role, with this configuration before the destination.
    fn configure(&self, role: &str, config: &str, adopt: &str) {
        let url = postgres_url().replace("pillarbox@", &format!("{role}@"));
        let schema = self.fixture.schema();
        self.fixture.write(&format!(
            "[database]\nurl = \"{url}\"\nschema = \"{schema}\"\n{config}{LOG}{adopt}"
        ));
        std::fs::set_permissions(
            self.fixture.path().join("pillarbox.toml"),
            std::os::unix::fs::PermissionsExt::from_mode(0o600),
        )
        .expect("its mode");
    }

    fn adopted(&self, more: &str) -> String {
        format!(
            "[[adopt]]\nname = \"orders\"\ntable = \"{}.orders\"\nid = \"id\"\npayload = \"payload\"\n\
             processed_at = \"sent_at\"\nto = \"log\"\n{more}",
            self.owner
        )
    }

    fn start(&self) -> Daemon {
        self.fixture.daemon(&[])
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        let Self {
            dispatcher, owner, ..
        } = self;
        self.fixture.sql(&format!(
            "drop schema {owner} cascade; drop owned by {dispatcher}; drop role {dispatcher}; drop role {owner}"
        ));
    }
}

/// `run` and `config check --connect` refuse it with this, and the exit codes of a configuration and of a check.
fn is_refused(shop: &Shop, expected: &str) {
    let folder = shop.fixture.path();
    let started = run(folder, &["run", "--listen", "127.0.0.1:0", "--log", "error"]).failure(2);
    let checked = run(folder, &["config", "check", "--connect"]).failure(1);
    for error in [started, checked] {
        assert!(
            error.contains(expected) && error.contains("refused by `strict` under [security]"),
            "{expected}: {error}"
        );
        let table = format!("table {}.orders: ", shop.owner);
        assert!(!error.contains(&format!("{table}{table}")), "{error}");
    }
}

#[test]
fn strict_refuses_a_superuser() {
    let shop = Shop::new();
    shop.configure("pillarbox", STRICT, "");
    is_refused(&shop, "no grant confines the database role: it is a superuser");
    shop.configure("pillarbox", "", "");
    let checked = run(shop.fixture.path(), &["config", "check", "--connect"]);
    assert!(
        checked.code == 0
            && checked
                .stderr
                .contains("no grant confines the database role: it is a superuser"),
        "{checked:?}"
    );
    shop.configure(&shop.dispatcher, STRICT, "");
    let daemon = shop.start();
    daemon.wait_until_ready();
    daemon.stop_blocking();
}

#[test]
fn strict_refuses_code_of_other_roles_on_an_adopted_table_unless_they_are_trusted() {
    let shop = Shop::new();
    shop.fixture.sql(&format!(
        "grant usage on schema {} to {}",
        shop.owner, shop.dispatcher
    ));
    shop.configure(&shop.dispatcher, STRICT, &shop.adopted(""));
    let belongs = format!("it belongs to the role {}, which can add triggers", shop.owner);
    is_refused(&shop, &belongs);
    is_refused(&shop, "the trigger spy calls");

    shop.configure(&shop.dispatcher, "", &shop.adopted(""));
    let daemon = shop.start();
    daemon.wait_until_ready();
    let log = daemon.stop_blocking();
    assert_eq!(log.matches(NOT_CONFINED).count(), 2, "{log}");
    assert!(
        log.contains(&belongs) && log.contains("the trigger spy calls"),
        "{log}"
    );

    let trusted = format!("trusted_roles = [\"{}\"]\n", shop.owner);
    shop.configure(&shop.dispatcher, STRICT, &shop.adopted(&trusted));
    let daemon = shop.start();
    daemon.wait_until_ready();
    let log = daemon.stop_blocking();
    assert!(!log.contains(NOT_CONFINED), "{log}");
}

#[test]
fn a_table_whose_schema_the_role_may_not_use_stops_no_other_table() {
    let shop = Shop::new();
    shop.configure(&shop.dispatcher, "", &shop.adopted(""));
    let daemon = shop.start();
    daemon.wait_until_ready();
    daemon.wait_for_log("import from adopted table failed; retrying");
    let grant = format!("grant usage on schema {} to {}", shop.owner, shop.dispatcher);
    let log = daemon.log();
    let line = log
        .lines()
        .find(|line| line.contains("import from adopted table failed"));
    let line = line.expect("just found");
    assert!(line.contains("ERROR") && line.contains(&grant), "{line}");
    // The daemon serves what it may.
    shop.fixture.sql("select * from SCHEMA.enqueue('shop', 'orders')");
    daemon.wait_for_stats("a native event is delivered", |stats| stats["delivered"] == 1);
    // And the table as soon as it may.
    shop.fixture.sql(&format!(
        "{grant}; insert into {}.orders (payload) values ('{{}}')",
        shop.owner
    ));
    daemon.wait_for_stats("the row is delivered", |stats| stats["delivered"] == 2);
    daemon.stop_blocking();
}
