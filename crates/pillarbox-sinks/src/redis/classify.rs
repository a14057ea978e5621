//! The outcome of an answer of Redis, or of its absence.

use pillarbox::Outcome;
use redis::{ErrorKind, RedisError};

/// The outcome of a failed XADD. An error that Redis answers means that nothing was added.
pub(super) fn failure(error: &RedisError) -> Outcome {
    match error.code() {
        // The server accepts no writes: it is full, loading, a replica, without its replicas or its disk, busy with a
        // script, or it dropped the login.
        Some(
            "OOM" | "LOADING" | "READONLY" | "NOREPLICAS" | "MISCONF" | "BUSY" | "NOAUTH" | "CLUSTERDOWN"
            | "MASTERDOWN" | "TRYAGAIN",
        ) => Outcome::unavailable(format!("Redis accepts no writes: {error}")),
        Some("WRONGTYPE") => Outcome::retry(format!(
            "the key is not a stream: {error} (rename it, or choose another `stream`)"
        )),
        Some("NOPERM") => Outcome::retry(format!(
            "the user may not write to the stream: {error} (grant it)"
        )),
        Some("MOVED" | "ASK" | "CROSSSLOT") => Outcome::retry(format!(
            "the stream is on another node of a cluster: {error} (use the URL of that node)"
        )),
        Some(_) => Outcome::retry(format!("Redis refused the entry: {error}")),
        None => no_answer(error),
    }
}

fn no_answer(error: &RedisError) -> Outcome {
    match error.kind() {
        ErrorKind::UnexpectedReturnType => {
            Outcome::retry(format!("Redis answered without the id of an entry: {error}"))
        }
        _ => Outcome::connection_lost(format!("the connection was lost before the answer: {error}")),
    }
}

/// Does the next event need a new connection? After a failover the host name has another address.
pub(super) fn is_wrong_server(error: &RedisError) -> bool {
    matches!(error.code(), Some("READONLY" | "NOAUTH" | "MASTERDOWN"))
}

/// Why the connection failed, without the password.
pub(super) fn not_connected(error: &RedisError, address: &str) -> String {
    match (error.kind(), error.code()) {
        (ErrorKind::AuthenticationFailed, _) | (_, Some("WRONGPASS" | "NOAUTH" | "NOPERM")) => {
            format!("Redis at {address} refused the user or the password: {error}")
        }
        (ErrorKind::RESP3NotSupported, _) => {
            format!("Redis at {address} is older than version 6: {error}")
        }
        _ => format!("Redis at {address} cannot be reached: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::parse_redis_value;

    /// The error as it comes off the wire.
    fn answer(line: &str) -> RedisError {
        let value = parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        value.extract_error().unwrap_err()
    }

    fn name(line: &str) -> &'static str {
        failure(&answer(line)).name()
    }

    #[test]
    fn a_server_that_takes_no_writes_is_unavailable() {
        for line in [
            "OOM command not allowed when used memory > 'maxmemory'.",
            "LOADING Redis is loading the dataset in memory",
            "READONLY You can't write against a read only replica.",
            "NOREPLICAS Not enough good replicas to write.",
            "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
            "BUSY Redis is busy running a script.",
            "NOAUTH Authentication required.",
            "CLUSTERDOWN The cluster is down",
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
            "TRYAGAIN Multiple keys request during rehashing of slot",
        ] {
            assert_eq!(name(line), "unavailable", "{line}");
        }
    }

    #[test]
    fn what_an_operator_can_correct_is_retried() {
        for line in [
            "WRONGTYPE Operation against a key holding the wrong kind of value",
            "NOPERM this user has no permissions to access one of the keys used as arguments",
            "MOVED 3999 127.0.0.1:6381",
            "ASK 3999 127.0.0.1:6381",
            "CROSSSLOT Keys in request don't hash to the same slot",
            "ERR unknown command",
            "WHATEVER is new",
        ] {
            assert_eq!(name(line), "retry", "{line}");
        }
    }

    #[test]
    fn a_lost_connection_is_uncertain() {
        for kind in [
            std::io::ErrorKind::ConnectionReset,
            std::io::ErrorKind::UnexpectedEof,
        ] {
            assert_eq!(
                failure(&std::io::Error::from(kind).into()).name(),
                "connection_lost"
            );
        }
        assert_eq!(failure(&(ErrorKind::Io, "gone").into()).name(), "connection_lost");
        assert_eq!(
            failure(&(ErrorKind::UnexpectedReturnType, "what?").into()).name(),
            "retry"
        );
    }

    #[test]
    fn after_a_failover_another_server_is_looked_for() {
        assert!(is_wrong_server(&answer("READONLY no")));
        assert!(!is_wrong_server(&answer("OOM no")));
    }
}
