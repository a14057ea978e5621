//! The state of a saga, and what it waits for.

use std::fmt;

/// The status of a saga.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// Going forward.
    Running,
    /// It failed, and what was done is being undone.
    Compensating,
    /// Every step is done. Final.
    Completed,
    /// Everything that was done is undone. Final.
    Compensated,
}

impl Status {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Running,
        Self::Compensating,
        Self::Completed,
        Self::Compensated,
    ];

    /// As the `status` column says it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Compensating => "compensating",
            Self::Completed => "completed",
            Self::Compensated => "compensated",
        }
    }

    /// Is it over?
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Compensated)
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a command asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Do the step.
    Command,
    /// Undo it.
    Compensation,
}

impl Action {
    /// As the header `saga-action` says it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Compensation => "compensation",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        [Self::Command, Self::Compensation]
            .into_iter()
            .find(|action| action.as_str() == text)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One command of a saga: which try at which step. No two commands of a saga are the same attempt.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Attempt {
    /// Which step.
    pub step: String,
    /// To do it, or to undo it.
    pub action: Action,
    /// Which try at that, from 1. It only grows, also when an operator resumes the saga.
    pub number: u32,
}

/// What a service answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Answer {
    /// It is done; or, of a compensation, undone, or there was nothing to undo.
    Done,
    /// Nothing was done, and it is worth trying again.
    Failed,
    /// Nothing was done, and it never will be.
    Refused,
}

impl Answer {
    /// As the header `saga-outcome` says it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Refused => "refused",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        [Self::Done, Self::Failed, Self::Refused]
            .into_iter()
            .find(|answer| answer.as_str() == text)
    }
}

/// The part of a saga that changes by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) status: Status,
    /// The steps that were begun and not undone, in their order. The last is the current one until the saga has ended.
    pub(crate) path: Vec<String>,
    /// Which try at the current step, for its answer.
    pub(crate) number: u32,
    /// How many tries count against the step's limit. An operator's resume sets it to zero.
    pub(crate) tries: u32,
    /// Was a try at the current step left without its answer?
    pub(crate) in_doubt: bool,
}

impl State {
    /// What it waits for; nothing if it has ended.
    pub(crate) fn current(&self) -> Option<Attempt> {
        let action = match self.status {
            Status::Running => Action::Command,
            Status::Compensating => Action::Compensation,
            Status::Completed | Status::Compensated => return None,
        };
        Some(Attempt {
            step: self.path.last()?.clone(),
            action,
            number: self.number,
        })
    }
}
