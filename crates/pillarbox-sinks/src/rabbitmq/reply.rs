//! Where the outcome of a message goes: to the call that waits for it.
//!
//! One call may wait for many messages. Each has its place in the list of the call, and its outcome arrives as soon as it is known.
//!
//! **If we die here** the outcome of what was in flight is unknown, and it is sent again.

use pillarbox::Outcome;
use tokio::sync::mpsc::UnboundedSender;

use super::pool::InFlight;

/// Reports one outcome. If it is dropped before, the connection was lost.
pub(super) struct Reply {
    call: Option<UnboundedSender<(usize, Outcome)>>,
    index: usize,
    _in_flight: InFlight,
}

impl Reply {
    /// For the event at this place of the call's list.
    pub(super) fn new(call: UnboundedSender<(usize, Outcome)>, index: usize, in_flight: InFlight) -> Self {
        Self {
            call: Some(call),
            index,
            _in_flight: in_flight,
        }
    }

    pub(super) fn report(mut self, outcome: Outcome) {
        self.send(outcome);
    }

    /// Was the call dropped?
    pub(super) fn is_closed(&self) -> bool {
        self.call.as_ref().is_none_or(UnboundedSender::is_closed)
    }

    fn send(&mut self, outcome: Outcome) {
        if let Some(call) = self.call.take() {
            call.send((self.index, outcome)).ok(); // the call may have been dropped
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        let reason = "the connection was closed before the confirmation";
        if self.call.is_some() {
            self.send(Outcome::connection_lost(reason));
        }
    }
}
