//! `pillarbox keys skip` and `pillarbox keys retry`: unblock a key by its first event.

use clap::Args;
use pillarbox_store::operate::BlockedKey;
use pillarbox_store::{Actor, Operate, Scope};

use super::super::actor::Because;
use super::super::database_args::DatabaseArgs;
use crate::failure::Failure;
use crate::output;

/// How many blocked keys of a namespace are searched.
const MOST: usize = 10_000;

const EXAMPLES: &str = "\
Examples:
  pillarbox keys skip shop order-42
  pillarbox keys retry shop order-42 --destination partner";

/// The key to unblock.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Unblock {
    /// Name the key's namespace
    namespace: String,

    /// Name the ordering key, as `keys ls` shows it
    key: String,

    /// Choose the destination, if the key is blocked at several
    #[arg(long, value_name = "NAME")]
    destination: Option<String>,

    #[command(flatten)]
    because: Because,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    database: DatabaseArgs,
}

/// What to do with the first event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    /// The others of the key continue without it.
    Skip,
    /// It is due now.
    Retry,
}

impl Verb {
    fn done(self) -> &'static str {
        match self {
            Self::Skip => "skipped",
            Self::Retry => "retried",
        }
    }
}

impl Unblock {
    pub(super) async fn run(self, verb: Verb) -> Result<(), Failure> {
        let database = self.database.open().await?;
        let (operate, actor) = (database.operate(), self.because.operator());
        let blocked = self.find(operate.as_ref(), &actor).await?;
        let changed = match verb {
            Verb::Skip => operate.skip(&actor, &[blocked.head]).await?,
            Verb::Retry => operate.retry(&actor, &[blocked.head]).await?,
        };
        if changed.is_empty() {
            return Err(Failure::failed(format!(
                "event {} no longer blocks the key: a worker claimed it meanwhile (see `keys ls`)",
                blocked.head
            )));
        }
        if self.json {
            return output::json(&serde_json::json!({ verb.done(): blocked }));
        }
        let to = blocked.destination.as_deref().unwrap_or("no destination yet");
        output::line(&output::escape(&format!(
            "{} {}: it blocked the key {} of {} ({to}), {} behind it",
            blocked.head,
            verb.done(),
            blocked.ordering_key,
            blocked.namespace,
            blocked.behind
        )))
    }

    /// The event that blocks the key. An error if there is none, or if there are several.
    async fn find(&self, operate: &dyn Operate, actor: &Actor) -> Result<BlockedKey, Failure> {
        let scope = Scope::of([self.namespace.clone()]);
        let all = operate.blocked(actor, &scope, MOST).await?;
        let cut_off = all.len() == MOST;
        let matches = |blocked: &BlockedKey| {
            let wanted = |name: &String| blocked.destination.as_ref() == Some(name);
            blocked.ordering_key == self.key && self.destination.as_ref().is_none_or(wanted)
        };
        let mut found: Vec<BlockedKey> = all.into_iter().filter(matches).collect();
        match (found.pop(), found.as_slice()) {
            (Some(blocked), []) => Ok(blocked),
            (None, _) => Err(self.not_blocked(cut_off)),
            (last, rest) => {
                let all = rest.iter().chain(&last);
                let names: Vec<&str> = all.filter_map(|it| it.destination.as_deref()).collect();
                Err(Failure::usage(format!(
                    "key `{}` is blocked at several destinations (choose one with --destination: {})",
                    self.key,
                    names.join(", ")
                )))
            }
        }
    }

    fn not_blocked(&self, cut_off: bool) -> Failure {
        let at = match &self.destination {
            Some(name) => format!(" at `{name}`"),
            None => String::new(),
        };
        let hint = if cut_off {
            format!("only the {MOST} oldest blocked keys are searched; use `events skip ID`")
        } else {
            "`keys ls` lists blocked keys".to_owned()
        };
        Failure::failed(format!(
            "key `{}` of `{}` is not blocked{at} ({hint})",
            self.key, self.namespace
        ))
    }
}
