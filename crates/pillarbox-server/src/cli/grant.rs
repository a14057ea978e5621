//! `pillarbox grant`

use clap::{Args, Subcommand};
use pillarbox_store::Actor;
use pillarbox_store::Store as _;
use pillarbox_store::stores::postgres::{self, Bounds, Duty, Postgres};
use uuid::Uuid;

use super::actor::Because;
use super::database_args::{self, DatabaseArgs};
use crate::database::{Database, IfMissing};
use crate::failure::Failure;
use crate::logs;
use crate::output;

const EXAMPLES: &str = "\
Run it as the owner of the outbox. It is safe to run twice. It replaces what the role was bound to
in this duty, and revokes nothing else.

Examples:
  pillarbox grant producer shop --namespace shop --database postgres://owner@localhost/shop
  pillarbox grant dispatcher pillarbox_daemon --create --database postgres://owner@localhost/shop
  pillarbox grant writer shop --print --schema shop_outbox | psql …
  pillarbox grant producer shop --check      list what it may do beyond its duties
  pillarbox grant api console --create       and switch row-level security on

A created role has no password: set one with `alter role … password`, or configure another
authentication method.";

/// Grants a database role the permissions of one duty (PostgreSQL).
#[derive(Debug, Subcommand)]
pub(crate) enum Grant {
    /// Allow a role to enqueue with the functions, in some namespaces, and nothing else
    Producer(Box<Producer>),
    /// Allow a role to insert events of any namespace, tenant and destination: trust it
    Writer(Role),
    /// Allow a role to mark handled events in the inbox, as some consumers
    Consumer(Box<Consumer>),
    /// Allow a role to run some kinds of saga (it also needs `producer` or `writer`)
    Orchestrator(Box<Orchestrator>),
    /// Allow a role to run the daemon
    Dispatcher(Role),
    /// Allow a role to operate on the rows of one tenant at a time
    Api(Box<Api>),
}

/// An API.
#[derive(Debug, Args)]
pub(crate) struct Api {
    #[command(flatten)]
    role: Role,

    /// Allow the rows of all tenants, and what they share: the duty `api_any_tenant`
    #[arg(long)]
    any_tenant: bool,
}

/// A producer.
#[derive(Debug, Args)]
pub(crate) struct Producer {
    #[command(flatten)]
    role: Role,

    /// Allow this namespace (repeatable)
    #[arg(long, help_heading = "Bounds", value_name = "NAME", value_parser = exact, required_unless_present_any = ["any_namespace", "check"])]
    namespace: Vec<String>,

    /// Allow every namespace
    #[arg(long, help_heading = "Bounds", conflicts_with = "namespace")]
    any_namespace: bool,

    /// Allow only this tenant (repeatable) [default: any tenant, and none]
    #[arg(long, help_heading = "Bounds", value_name = "ID")]
    tenant: Vec<Uuid>,

    /// Allow to name this destination (repeatable) [default: the routes decide]
    #[arg(long, help_heading = "Bounds", value_name = "NAME")]
    destination: Vec<String>,
}

/// A consumer.
#[derive(Debug, Args)]
pub(crate) struct Consumer {
    #[command(flatten)]
    role: Role,

    /// Allow the marks of this consumer (repeatable)
    #[arg(long, help_heading = "Bounds", value_name = "NAME", value_parser = exact, required_unless_present_any = ["any_name", "check"])]
    name: Vec<String>,

    /// Allow the marks of every consumer
    #[arg(long, help_heading = "Bounds", conflicts_with = "name")]
    any_name: bool,
}

/// An orchestrator.
#[derive(Debug, Args)]
pub(crate) struct Orchestrator {
    #[command(flatten)]
    role: Role,

    /// Allow sagas of this name (repeatable)
    #[arg(long, help_heading = "Bounds", value_name = "NAME", value_parser = exact, required_unless_present_any = ["any_saga", "check"])]
    saga: Vec<String>,

    /// Allow every saga
    #[arg(long, help_heading = "Bounds", conflicts_with = "saga")]
    any_saga: bool,
}

/// The role and the options.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Role {
    /// Name the role
    role: String,

    /// Create the role, with login, if it does not exist
    #[arg(long)]
    create: bool,

    /// Print the SQL instead of running it
    #[arg(long, conflicts_with = "json")]
    print: bool,

    #[command(flatten)]
    because: Because,

    /// Grant nothing; list what the role may do beyond this duty and its others
    #[arg(long, conflicts_with_all = ["create", "print"])]
    check: bool,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    database: DatabaseArgs,
}

/// Bounds are compared as they are, so a pattern would allow nothing.
fn exact(name: &str) -> Result<String, String> {
    if name.contains('*') {
        return Err(
            "patterns are not supported (give each name, or allow every one with --any-…)".to_owned(),
        );
    }
    Ok(name.to_owned())
}

impl Grant {
    pub(super) async fn run(self) -> Result<(), Failure> {
        match self {
            Self::Producer(it) => {
                let bounds = Bounds {
                    namespaces: unless(it.any_namespace, it.namespace),
                    tenants: unless(it.tenant.is_empty(), it.tenant),
                    destinations: it.destination,
                    ..Bounds::default()
                };
                it.role.run(Duty::Producer, &bounds).await
            }
            Self::Writer(role) => role.run(Duty::Writer, &Bounds::default()).await,
            Self::Consumer(it) => {
                let names = unless(it.any_name, it.name);
                let bounds = Bounds {
                    names,
                    ..Bounds::default()
                };
                it.role.run(Duty::Consumer, &bounds).await
            }
            Self::Orchestrator(it) => {
                let names = unless(it.any_saga, it.saga);
                let bounds = Bounds {
                    names,
                    ..Bounds::default()
                };
                it.role.run(Duty::Orchestrator, &bounds).await
            }
            Self::Dispatcher(role) => role.run(Duty::Dispatcher, &Bounds::default()).await,
            Self::Api(it) => {
                let duty = if it.any_tenant {
                    Duty::ApiAnyTenant
                } else {
                    Duty::Api
                };
                it.role.run(duty, &Bounds::default()).await
            }
        }
    }
}

/// `None` for any.
fn unless<T>(any: bool, values: Vec<T>) -> Option<Vec<T>> {
    (!any).then_some(values)
}

impl Role {
    async fn run(self, duty: Duty, bounds: &Bounds) -> Result<(), Failure> {
        if self.print {
            return self.print(duty, bounds);
        }
        let store = open_owned(&self.database, "grant", "roles").await?;
        let actor = self.because.operator();
        if self.check {
            return self.check(&actor, duty, &store).await;
        }
        let created = store.grant(&actor, duty, bounds, &self.role, self.create).await?;
        // The others are not bound.
        let is_bound = matches!(
            duty,
            Duty::Producer | Duty::Consumer | Duty::Orchestrator | Duty::Api
        );
        if is_bound && let Some(risk) = store.owner_risk().await? {
            logs::warning(&output::escape(&risk));
        }
        let (name, schema) = (duty.name(), store.schema());
        if self.json {
            return output::json(&serde_json::json!({
                "role": self.role, "duty": name, "schema": schema, "created": created,
            }));
        }
        let created = if created { "created, " } else { "" };
        output::line(&output::escape(&format!(
            "{}: {created}granted the duty {name} in the schema {schema}",
            self.role
        )))
    }

    /// The schema is the configured one, if there is a configuration.
    fn print(&self, duty: Duty, bounds: &Bounds) -> Result<(), Failure> {
        let schema = match (&self.database.schema, self.database.find_if_any()?) {
            (Some(schema), _) => schema.clone(),
            (None, Some(found)) => found.database.schema,
            (None, None) => postgres::SCHEMA.to_owned(),
        };
        let invalid = |error: pillarbox::StoreError| Failure::usage(error.to_string());
        let reason = self.because.text();
        let script = postgres::grant_script(duty, bounds, &schema, &self.role, self.create, reason);
        output::line(script.map_err(invalid)?.trim_end())
    }

    async fn check(&self, actor: &Actor, duty: Duty, store: &Postgres) -> Result<(), Failure> {
        let beyond = store.beyond(actor, duty, &self.role).await?;
        let lacks = store.lacks(actor, duty, &self.role).await?;
        if let [first, rest @ ..] = lacks.as_slice() {
            let more = if rest.is_empty() {
                String::new()
            } else {
                format!(" and {} more", rest.len())
            };
            logs::warning(&output::escape(&format!(
                "role {} lacks what the duty {} needs: {first}{more} (grant it again)",
                self.role,
                duty.name()
            )));
        }
        if self.json {
            output::json(&serde_json::json!({ "role": self.role, "beyond": beyond, "lacks": lacks }))?;
        } else if beyond.is_empty() {
            output::line(&output::escape(&format!(
                "{}: nothing beyond its duties",
                self.role
            )))?;
        } else {
            for permission in &beyond {
                output::line(&output::escape(permission))?;
            }
        }
        if beyond.is_empty() {
            return Ok(());
        }
        Err(Failure::failed(format!(
            "role {} may do more than its duties: {} permission{} (revoke them, or the roles that it is a member of)",
            output::escape(&self.role),
            beyond.len(),
            if beyond.len() == 1 { "" } else { "s" }
        )))
    }
}

/// The same, as the owner of the outbox or a member of it. Another role has this as its error, and not the first table that it
/// may not read.
pub(super) async fn open_owned(
    database: &DatabaseArgs,
    what: &str,
    lacks: &str,
) -> Result<Postgres, Failure> {
    let found = database.find()?.database;
    let store = postgres(Database::open(&found, IfMissing::Fail).await?, what, lacks)?;
    store.check_owned().await?;
    store.check().await?;
    Ok(store)
}

/// Opens the chosen database, which has what SQLite lacks.
pub(super) async fn open(database: &DatabaseArgs, what: &str, lacks: &str) -> Result<Postgres, Failure> {
    postgres(
        database_args::open(&database.find()?.database).await?,
        what,
        lacks,
    )
}

fn postgres(database: Database, what: &str, lacks: &str) -> Result<Postgres, Failure> {
    match database {
        Database::Postgres(store) => Ok(store),
        Database::Sqlite { .. } => Err(Failure::usage(format!(
            "cannot {what}: SQLite has no {lacks} ({lacks} are for PostgreSQL)"
        ))),
    }
}
