//! What a failed write means.

use std::io;

use pillarbox::Outcome;

/// From the error of a write or a flush.
pub(super) fn outcome(error: &io::Error) -> Outcome {
    match error.kind() {
        io::ErrorKind::BrokenPipe => {
            Outcome::unavailable(format!("the log has no reader: {error} (start one)"))
        }
        _ => Outcome::retry(format!("the log cannot be written: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_pipe_is_unavailable_and_a_full_disk_is_a_failure() {
        assert_eq!(outcome(&io::ErrorKind::BrokenPipe.into()).name(), "unavailable");
        assert_eq!(outcome(&io::ErrorKind::StorageFull.into()).name(), "retry");
    }
}
