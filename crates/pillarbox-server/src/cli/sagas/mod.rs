//! `pillarbox sagas`: what a person does with sagas. One file per verb.

mod ask;
mod ls;
mod show;

use clap::{Args, Subcommand};
use pillarbox::saga::{Ask, SagaFilter, SagaRecord};
use pillarbox_store::Operate;

use crate::failure::Failure;
use crate::output;

/// Looks at sagas, and asks something of those that are stuck.
#[derive(Debug, Subcommand)]
pub(crate) enum Sagas {
    /// List sagas, the latest started first
    Ls(ls::Ls),
    /// Show one saga with what it knows and what happened to it
    Show(show::Show),
    /// Ask a saga to send its current command again now, with all its attempts
    Resume(ask::Asking),
    /// Ask a saga to give up and to undo what was done
    Compensate(ask::Asking),
}

impl Sagas {
    pub(super) async fn run(self) -> Result<(), Failure> {
        match self {
            Self::Ls(ls) => ls.run().await,
            Self::Show(show) => show.run().await,
            Self::Resume(asking) => asking.run(Ask::Resume).await,
            Self::Compensate(asking) => asking.run(Ask::Compensate).await,
        }
    }
}

/// Which saga.
#[derive(Debug, Args)]
struct Which {
    /// The saga's id, from `sagas ls`
    id: String,

    /// The saga's name, where several kinds have one of that id
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

impl Which {
    /// The one that is meant. An error if there is none, or if it is not clear which.
    async fn find(&self, operate: &dyn Operate) -> Result<SagaRecord, Failure> {
        let filter = SagaFilter {
            id: Some(self.id.clone()),
            name: self.name.clone(),
            ..SagaFilter::default()
        };
        let mut found = operate.sagas(&filter).await?;
        match (found.pop(), found.as_slice()) {
            (Some(saga), []) => Ok(saga),
            (None, _) => Err(self.not_found()),
            (last, rest) => {
                let all = rest.iter().chain(&last);
                let names: Vec<&str> = all.map(|saga| saga.name.as_str()).collect();
                Err(Failure::usage(format!(
                    "several kinds of sagas have the id `{}`; give --name: {}",
                    self.id,
                    names.join(", ")
                )))
            }
        }
    }

    fn not_found(&self) -> Failure {
        let kind = match &self.name {
            Some(name) => format!(" of the name `{name}`"),
            None => String::new(),
        };
        Failure::failed(format!(
            "there is no saga{kind} with the id `{}`; `sagas ls` lists them",
            self.id
        ))
    }
}

/// What a saga is called when it is spoken of.
fn called(saga: &SagaRecord) -> String {
    output::escape(&format!("{} {}", saga.name, saga.id))
}
