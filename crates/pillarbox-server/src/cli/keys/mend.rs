//! `pillarbox keys skip` and `pillarbox keys retry`: find what blocks a key, and do something about it.

use clap::Args;
use pillarbox_store::operate::BlockedKey;
use pillarbox_store::{Operate, Scope};

use super::super::target::Target;
use crate::failure::Failure;
use crate::output;

/// How many blocked keys of a namespace are looked through.
const MOST: usize = 10_000;

const EXAMPLES: &str = "\
Examples:
  pillarbox keys skip shop order-42
  pillarbox keys retry shop order-42 --destination partner";

/// Which key.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Mend {
    /// The key's namespace
    namespace: String,

    /// The ordering key, from `keys ls`
    key: String,

    /// Where it is blocked, if that is at several destinations
    #[arg(long, value_name = "NAME")]
    destination: Option<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    target: Target,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    /// Let the others go past the head.
    Skip,
    /// Try the head again.
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

impl Mend {
    pub(super) async fn run(self, verb: Verb) -> Result<(), Failure> {
        let database = self.target.open().await?;
        let operate = database.operate();
        let blocked = self.find(operate.as_ref()).await?;
        let changed = match verb {
            Verb::Skip => operate.skip(&[blocked.head]).await?,
            Verb::Retry => operate.retry(&[blocked.head]).await?,
        };
        if changed.is_empty() {
            return Err(Failure::failed(format!(
                "the event {} no longer blocks the key: it was taken meanwhile; look again with `keys ls`",
                blocked.head
            )));
        }
        if self.json {
            return output::json(&serde_json::json!({ verb.done(): blocked }));
        }
        let to = blocked.destination.as_deref().unwrap_or("no destination yet");
        output::line(&output::escape(&format!(
            "{} {}: it blocked the key {} of {} ({to}) with {} behind it",
            blocked.head,
            verb.done(),
            blocked.ordering_key,
            blocked.namespace,
            blocked.behind
        )))
    }

    /// What blocks the key. An error if nothing does, or if it is not clear what is meant.
    async fn find(&self, operate: &dyn Operate) -> Result<BlockedKey, Failure> {
        let scope = Scope::of([self.namespace.clone()]);
        let all = operate.blocked(&scope, MOST).await?;
        let cut_off = all.len() == MOST;
        let asked = |blocked: &BlockedKey| {
            let wanted = |name: &String| blocked.destination.as_ref() == Some(name);
            blocked.ordering_key == self.key && self.destination.as_ref().is_none_or(wanted)
        };
        let mut found: Vec<BlockedKey> = all.into_iter().filter(asked).collect();
        match (found.pop(), found.as_slice()) {
            (Some(blocked), []) => Ok(blocked),
            (None, _) => Err(self.not_blocked(cut_off)),
            (last, rest) => {
                let all = rest.iter().chain(&last);
                let names: Vec<&str> = all.filter_map(|it| it.destination.as_deref()).collect();
                Err(Failure::usage(format!(
                    "the key `{}` is blocked at several destinations; give --destination: {}",
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
            format!(
                "not among the {MOST} keys of the namespace that were blocked first; use `events skip ID`"
            )
        } else {
            "`keys ls` lists those that are".to_owned()
        };
        Failure::failed(format!(
            "the key `{}` of `{}` is not blocked{at}; {hint}",
            self.key, self.namespace
        ))
    }
}
