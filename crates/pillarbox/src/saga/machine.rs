//! How a saga moves: one pure function from its state and one message to its next state.
//!
//! ```text
//!            every step done
//!  running ─────────────────────▶ completed
//!     │  a step refused, its attempts used up, or an operator gave up
//!     ▼
//!  compensating ────────────────▶ compensated
//!            everything undone
//! ```
//!
//! A saga waits for exactly one answer at a time: that to its current [`Attempt`]. Every other message is late, duplicate or
//! foreign, and changes nothing. This makes a saga idempotent.
//!
//! Compensation undoes, in reverse order, every step that was done. Before them it undoes the step that failed, if its
//! outcome is in doubt: an attempt timed out, or an operator's request replaced it. Steps without a compensation are
//! skipped. A compensation is retried for ever.
//!
//! **If we die here** nothing happened: nothing here writes.

use std::time::Duration;

use super::line::{Line, What};
use super::state::{Action, Answer, Attempt, State, Status};
use crate::retry::RetryPolicy;

/// What the machine knows of a definition.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<Planned>,
    /// The waits between tries at a compensation; its limit does not count.
    pub(crate) undo: RetryPolicy,
}

/// What it knows of a step.
#[derive(Debug, Clone)]
pub(crate) struct Planned {
    pub(crate) name: String,
    pub(crate) retry: RetryPolicy,
    pub(crate) timeout: Duration,
    pub(crate) has_compensation: bool,
}

impl Plan {
    pub(crate) fn step(&self, name: &str) -> Option<&Planned> {
        self.steps.iter().find(|step| step.name == name)
    }

    /// The wait after so many tries at a compensation. There is always a next one.
    fn undo_delay(&self, tries: u32, random: f64) -> Duration {
        let most = self.undo.limit().map_or(tries, |limit| limit.saturating_sub(1));
        self.undo.delay(tries.min(most), random).unwrap_or_default()
    }
}

/// A message to the saga.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Input {
    Answered {
        to: Attempt,
        answer: Answer,
        reason: Option<String>,
    },
    TimedOut(Attempt),
    /// Send the command again that the operator saw waiting.
    Resume(Attempt),
    Compensate,
}

/// What comes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    Moved(Moved),
    Ignored(Why),
}

/// A saga that went on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) state: State,
    /// Send what is current now, after this wait.
    pub(crate) send: Option<Duration>,
    pub(crate) log: Vec<Line>,
}

/// Why something changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It is not about the attempt that the saga waits for: duplicate, late, or of a step that is over.
    NotCurrent,
    /// The saga is over.
    Ended,
    /// It is being compensated already.
    Compensating,
}

/// The definition is not the one that the saga was started with, and does not say how to go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Changed {
    pub(crate) path: Vec<String>,
}

/// The beginning of a saga. A plan has at least one step.
pub(crate) fn begin(plan: &Plan) -> Moved {
    let mut going = Going {
        plan,
        state: State {
            status: Status::Running,
            path: vec![plan.steps[0].name.clone()],
            number: 0,
            tries: 0,
            in_doubt: false,
        },
        log: Vec::new(),
    };
    going.note(What::Started, None, None);
    going.send(Duration::ZERO)
}

/// Decides how a saga moves on a message. `random` is uniform in [0, 1).
pub(crate) fn decide(plan: &Plan, state: &State, input: Input, random: f64) -> Result<Decision, Changed> {
    if state.status.has_ended() {
        return Ok(Decision::Ignored(Why::Ended));
    }
    let going = Going {
        plan,
        state: state.clone(),
        log: Vec::new(),
    };
    match input {
        Input::Answered { to, .. } | Input::TimedOut(to) | Input::Resume(to)
            if state.current() != Some(to.clone()) =>
        {
            Ok(Decision::Ignored(Why::NotCurrent))
        }
        Input::Answered { to, answer, reason } => {
            check(plan, state)?;
            Ok(going.answered(to, answer, reason, random).into())
        }
        Input::TimedOut(to) => {
            check(plan, state)?;
            Ok(going.timed_out(to, random).into())
        }
        Input::Resume(_) => {
            check(plan, state)?;
            Ok(going.resumed().into())
        }
        Input::Compensate if state.status == Status::Compensating => Ok(Decision::Ignored(Why::Compensating)),
        Input::Compensate => {
            check_way_back(plan, state)?;
            Ok(going.given_up("asked for").into())
        }
    }
}

impl From<Moved> for Decision {
    fn from(moved: Moved) -> Self {
        Self::Moved(moved)
    }
}

/// Does the definition still say what comes next, and how everything so far is undone?
fn check(plan: &Plan, state: &State) -> Result<(), Changed> {
    let begins_so = plan.steps.len() >= state.path.len()
        && plan
            .steps
            .iter()
            .zip(&state.path)
            .all(|(step, name)| step.name == *name);
    match state.status {
        Status::Running if !begins_so => Err(changed(state)),
        Status::Running | Status::Completed | Status::Compensated => Ok(()),
        Status::Compensating => check_way_back(plan, state),
    }
}

/// Does it still say how everything so far is undone? That is enough to give up.
fn check_way_back(plan: &Plan, state: &State) -> Result<(), Changed> {
    let all_known = state.path.iter().all(|name| plan.step(name).is_some());
    if all_known { Ok(()) } else { Err(changed(state)) }
}

fn changed(state: &State) -> Changed {
    Changed {
        path: state.path.clone(),
    }
}

/// A saga while it is decided how it goes on.
struct Going<'a> {
    plan: &'a Plan,
    state: State,
    log: Vec<Line>,
}

impl Going<'_> {
    fn answered(mut self, to: Attempt, answer: Answer, reason: Option<String>, random: f64) -> Moved {
        let action = to.action;
        self.note(What::Answered(answer), Some(to), reason);
        match (action, answer) {
            (Action::Command, Answer::Done) => self.next(),
            (Action::Command, Answer::Failed) => self.again(random),
            (Action::Command, Answer::Refused) => self.give_up("refused"),
            (Action::Compensation, Answer::Done) => {
                self.state.path.pop();
                self.unwind()
            }
            // Whatever the reply: what was done must be undone, and the operator sees that it is not.
            (Action::Compensation, Answer::Failed | Answer::Refused) => self.undo_again(random),
        }
    }

    fn timed_out(mut self, to: Attempt, random: f64) -> Moved {
        let action = to.action;
        self.note(What::TimedOut, Some(to), None);
        self.state.in_doubt = true;
        match action {
            Action::Command => self.again(random),
            Action::Compensation => self.undo_again(random),
        }
    }

    /// The request replaces the attempt that waits, so its outcome stays unknown.
    fn resumed(mut self) -> Moved {
        let about = self.state.current();
        self.note(What::Resumed, about, None);
        self.state.in_doubt = true;
        self.state.tries = 0;
        self.send(Duration::ZERO)
    }

    fn given_up(mut self, why: &str) -> Moved {
        self.state.in_doubt = true;
        self.give_up(why)
    }

    /// The step after the one that is done.
    fn next(mut self) -> Moved {
        let Some(next) = self.plan.steps.get(self.state.path.len()) else {
            return self.end(Status::Completed, What::Completed);
        };
        self.state.path.push(next.name.clone());
        self.begin_step();
        self.send(Duration::ZERO)
    }

    /// The same step once more, if it has attempts left.
    fn again(self, random: f64) -> Moved {
        let step = self.state.path.last().and_then(|name| self.plan.step(name));
        match step.and_then(|step| step.retry.delay(self.state.tries, random)) {
            Some(delay) => self.send(delay),
            None => self.give_up("attempts used up"),
        }
    }

    fn undo_again(self, random: f64) -> Moved {
        let delay = self.plan.undo_delay(self.state.tries, random);
        self.send(delay)
    }

    fn give_up(mut self, why: &str) -> Moved {
        let about = self.state.current();
        self.note(What::Compensating, about, Some(why.to_owned()));
        if !self.state.in_doubt {
            self.state.path.pop(); // every service knows that it was not done
        }
        self.state.status = Status::Compensating;
        self.unwind()
    }

    /// The next compensation there is, from the last step back to the first.
    fn unwind(mut self) -> Moved {
        while let Some(name) = self.state.path.last() {
            if self.plan.step(name).is_some_and(|step| step.has_compensation) {
                self.begin_step();
                return self.send(Duration::ZERO);
            }
            self.state.path.pop();
        }
        self.end(Status::Compensated, What::Compensated)
    }

    fn begin_step(&mut self) {
        self.state.number = 0;
        self.state.tries = 0;
        self.state.in_doubt = false;
    }

    fn send(mut self, after: Duration) -> Moved {
        self.state.number = self.state.number.saturating_add(1);
        self.state.tries = self.state.tries.saturating_add(1);
        let about = self.state.current();
        let detail = (!after.is_zero()).then(|| format!("after {after:.1?}"));
        self.note(What::Sent, about, detail);
        Moved {
            state: self.state,
            send: Some(after),
            log: self.log,
        }
    }

    fn end(mut self, status: Status, what: What) -> Moved {
        self.state.status = status;
        self.state.in_doubt = false;
        self.note(what, None, None);
        Moved {
            state: self.state,
            send: None,
            log: self.log,
        }
    }

    fn note(&mut self, what: What, about: Option<Attempt>, detail: Option<String>) {
        self.log.push(Line { what, about, detail });
    }
}

#[cfg(test)]
mod tests;
