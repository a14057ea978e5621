//! What happened to a saga, line by line.

use super::state::{Answer, Attempt};

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) what: What,
    pub(crate) about: Option<Attempt>,
    pub(crate) detail: Option<String>,
}

/// What a line of the log says happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Started,
    Sent,
    Answered(Answer),
    TimedOut,
    Asked,
    Resumed,
    Compensating,
    Completed,
    Compensated,
    Ignored,
}

impl What {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Sent => "sent",
            Self::Answered(answer) => answer.as_str(),
            Self::TimedOut => "timed out",
            Self::Asked => "asked",
            Self::Resumed => "resumed",
            Self::Compensating => "compensating",
            Self::Completed => "completed",
            Self::Compensated => "compensated",
            Self::Ignored => "ignored",
        }
    }
}
