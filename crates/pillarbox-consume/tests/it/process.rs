//! Consumers in child processes, which can be killed.

use pillarbox_testkit::process::{Process, ignored_test};

const ARGUMENTS: &str = "PILLARBOX_TEST_ARGUMENTS";

/// Starts an ignored test of this binary, by its whole name, as a consumer. It aborts itself at the failpoint, if there is one.
pub(crate) fn start_consumer(test: &str, arguments: &str, abort_at: Option<&str>) -> Process {
    let mut command = ignored_test(test);
    command.env(ARGUMENTS, arguments);
    if let Some(failpoint) = abort_at {
        command.env("PILLARBOX_ABORT_AT", failpoint);
    }
    Process::start(command)
}

/// The arguments of this child process, which from now on logs to standard error: a failed test prints that.
pub(crate) fn arguments() -> Vec<String> {
    let log = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG);
    log.with_writer(std::io::stderr).init();
    let arguments = std::env::var(ARGUMENTS).expect("the parent process sets it");
    arguments.split('|').map(str::to_owned).collect()
}
