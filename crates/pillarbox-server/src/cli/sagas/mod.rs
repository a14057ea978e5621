//! `pillarbox sagas`. One file per verb.

mod ls;
mod request;
mod show;

use clap::{Args, Subcommand};
use pillarbox::saga::Ask;
use pillarbox_store::sagas::{SagaFilter, SagaRecord};
use pillarbox_store::{Actor, Operate};

use crate::failure::Failure;
use crate::output;

/// Lists and shows sagas, and requests their resumption or compensation.
#[derive(Debug, Subcommand)]
pub(crate) enum Sagas {
    /// List sagas, newest first
    Ls(ls::Ls),
    /// Show one saga with its data and its log
    Show(show::Show),
    /// Send a saga's current command again now, with all attempts
    Resume(request::Request),
    /// Compensate a saga: undo its completed steps
    Compensate(request::Request),
}

impl Sagas {
    pub(super) async fn run(self) -> Result<(), Failure> {
        match self {
            Self::Ls(ls) => ls.run().await,
            Self::Show(show) => show.run().await,
            Self::Resume(request) => request.run(Ask::Resume).await,
            Self::Compensate(request) => request.run(Ask::Compensate).await,
        }
    }
}

/// The saga.
#[derive(Debug, Args)]
struct Which {
    /// Name the saga's id, as `sagas ls` shows it
    id: String,

    /// Choose the saga's name, if several have this id
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

impl Which {
    /// The one saga. An error if there is none, or if there are several.
    async fn find(&self, operate: &dyn Operate, actor: &Actor) -> Result<SagaRecord, Failure> {
        let filter = SagaFilter {
            id: Some(self.id.clone()),
            name: self.name.clone(),
            ..SagaFilter::default()
        };
        let mut found = operate.sagas(actor, &filter).await?;
        match (found.pop(), found.as_slice()) {
            (Some(saga), []) => Ok(saga),
            (None, _) => Err(self.not_found()),
            (last, rest) => {
                let all = rest.iter().chain(&last);
                let names: Vec<&str> = all.map(|saga| saga.name.as_str()).collect();
                Err(Failure::usage(format!(
                    "several sagas have the id `{}` (choose one with --name: {})",
                    self.id,
                    names.join(", ")
                )))
            }
        }
    }

    fn not_found(&self) -> Failure {
        let kind = match &self.name {
            Some(name) => format!(" `{name}`"),
            None => String::new(),
        };
        Failure::failed(format!(
            "no saga{kind} has the id `{}` (`sagas ls` lists them)",
            self.id
        ))
    }
}

/// A saga's name and id, for messages.
fn title(saga: &SagaRecord) -> String {
    output::escape(&format!("{} {}", saga.name, saga.id))
}
