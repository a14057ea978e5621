//! Makes events of a decision: the command that is current now, and its timeout.

use time::OffsetDateTime;
use uuid::Uuid;

use super::definition::Saga;
use super::error::SagaError;
use super::machine::Changed;
use super::message::{OUTCOME, TIMEOUT, TIMEOUT_TYPE, addressed};
use super::row::Row;
use super::state::Action;
use crate::clock::{Clock, SystemClock};
use crate::enqueue::EnqueueError;
use crate::event::Event;

impl<T> Saga<T> {
    /// What is to be enqueued, if anything is to be sent after that wait. Tells the row when its timeout is due.
    pub(super) fn emit(
        &self,
        row: &mut Row,
        data: &T,
        after: Option<std::time::Duration>,
    ) -> Result<Vec<Event>, SagaError> {
        row.timeout_at = None;
        let (Some(after), Some(attempt)) = (after, row.state.current()) else {
            return Ok(Vec::new());
        };
        let gone = || {
            let path = row.state.path.clone();
            SagaError::changed(&row.name, &row.id, Changed { path })
        };
        let step = self.inner.plan.step(&attempt.step).ok_or_else(gone)?;
        let functions = self.inner.functions(&attempt.step).ok_or_else(gone)?;
        let make = match attempt.action {
            Action::Command => &functions.command,
            Action::Compensation => functions.compensation.as_ref().ok_or_else(gone)?,
        };
        let mut command = make(data).map_err(EnqueueError::NoJson)?;
        // Every try is an event of its own; that none is sent twice is the saga's affair.
        command.id = Uuid::now_v7();
        command.dedupe_key = None;
        let now = SystemClock.wall();
        let due = command.deliver_at.map_or(now + after, |at| at.max(now + after));
        if due > now {
            command.deliver_at = Some(due);
            command.ordering_key = None;
        }
        let token = row.attempt_secret.of_attempt(&attempt);
        let command = addressed(command, &row.name, &row.id, Some(&attempt), &token);
        let timeout_at = due + step.timeout;
        row.timeout_at = Some(timeout_at);
        let timeout = timeout(row, timeout_at);
        Ok(vec![
            command,
            addressed(timeout, &row.name, &row.id, Some(&attempt), &row.own_token),
        ])
    }
}

fn timeout(row: &Row, at: OffsetDateTime) -> Event {
    Event::new(&row.namespace, &row.topic)
        .event_type(TIMEOUT_TYPE)
        .aggregate(&row.name, &row.id)
        .header(OUTCOME, TIMEOUT)
        .deliver_at(at)
}
