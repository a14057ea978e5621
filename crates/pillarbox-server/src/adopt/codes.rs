//! Finds the meaning of the codes in a status column.

use pillarbox_store::stores::postgres::adopt::Status;

const PENDING: &[&str] = &[
    "pending",
    "new",
    "created",
    "ready",
    "queued",
    "unsent",
    "open",
    "unprocessed",
    "waiting",
];
const PROCESSING: &[&str] = &[
    "processing",
    "inprogress",
    "sending",
    "publishing",
    "claimed",
    "locked",
    "running",
];
const DELIVERED: &[&str] = &[
    "delivered",
    "sent",
    "completed",
    "complete",
    "processed",
    "published",
    "done",
    "success",
    "succeeded",
    "dispatched",
];
const FAILED: &[&str] = &["failed", "error", "errored", "retry", "retrying"];
const DEAD: &[&str] = &[
    "dead",
    "deadletter",
    "deadlettered",
    "abandoned",
    "rejected",
    "exhausted",
];

/// The meaning of a column's codes, and which of it is a guess.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Meaning {
    pub(crate) status: Status,
    pub(crate) why: String,
    pub(crate) guesses: Vec<String>,
}

/// Reads the codes of a column. `None` if no code can mean pending.
pub(crate) fn meaning(column: &str, is_number: bool, codes: &[String]) -> Option<Meaning> {
    if is_number {
        return numbers(column, codes);
    }
    let find = |names: &[&str]| {
        let plain = |code: &str| code.to_lowercase().replace(['_', '-', ' '], "");
        names
            .iter()
            .find_map(|name| codes.iter().find(|code| plain(code) == *name))
            .cloned()
    };
    let mut guesses = Vec::new();
    let pending = match find(PENDING) {
        Some(code) => code,
        None if codes.is_empty() => {
            guesses.push(format!(
                "the codes of `{column}` are unknown, because the table has none: fill them in"
            ));
            "pending".to_owned()
        }
        None => return None,
    };
    let delivered = find(DELIVERED).unwrap_or_else(|| {
        let loud = pending.chars().all(|c| !c.is_lowercase());
        let code = if loud { "SENT" } else { "sent" };
        guesses.push(format!(
            "no code in `{column}` means delivered: `{code}` is a guess"
        ));
        code.to_owned()
    });
    let (failed, dead) = match (find(FAILED), find(DEAD)) {
        // With one code for both, a row that will be retried stays pending.
        (failed, None) => (None, failed),
        (failed, dead) => (failed, dead),
    };
    let status = Status::Code {
        column: column.to_owned(),
        pending,
        processing: find(PROCESSING),
        failed,
        delivered,
        dead,
    };
    let why = if codes.is_empty() {
        "by its name".to_owned()
    } else {
        format!("its codes are {}", codes.join(", "))
    };
    Some(Meaning { status, why, guesses })
}

fn numbers(column: &str, codes: &[String]) -> Option<Meaning> {
    let has = |code: &str| codes.iter().any(|other| other == code);
    if !codes.is_empty() && !has("0") {
        return None;
    }
    let status = Status::Code {
        column: column.to_owned(),
        pending: "0".to_owned(),
        processing: None,
        failed: None,
        delivered: "1".to_owned(),
        dead: has("2").then(|| "2".to_owned()),
    };
    Some(Meaning {
        status,
        why: "it holds numbers".to_owned(),
        guesses: vec![format!(
            "`{column}` holds numbers: 0 for pending, 1 for delivered and 2 for dead is a guess"
        )],
    })
}

/// A boolean column that is true for delivered rows.
pub(crate) fn boolean(column: &str) -> Status {
    Status::Code {
        column: column.to_owned(),
        pending: "false".to_owned(),
        processing: None,
        failed: None,
        delivered: "true".to_owned(),
        dead: None,
    }
}

/// The codes that a status knows.
pub(crate) fn known(status: &Status) -> Vec<&str> {
    match status {
        Status::Code {
            pending,
            processing,
            failed,
            delivered,
            dead,
            ..
        } => [
            Some(pending),
            processing.as_ref(),
            failed.as_ref(),
            Some(delivered),
            dead.as_ref(),
        ]
        .into_iter()
        .flatten()
        .map(String::as_str)
        .collect(),
        Status::Processed | Status::Presence => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(codes: &[&str]) -> Option<Meaning> {
        let codes: Vec<String> = codes.iter().map(|code| (*code).to_owned()).collect();
        meaning("status", false, &codes)
    }

    #[test]
    fn failed_means_dead_unless_there_is_another_code_for_dead() {
        let Some(Meaning {
            status: Status::Code { failed, dead, .. },
            guesses,
            ..
        }) = codes(&["NEW", "SENT", "FAILED"])
        else {
            panic!("codes")
        };
        assert_eq!((failed, dead), (None, Some("FAILED".to_owned())));
        assert!(guesses.is_empty());
        let Some(Meaning {
            status: Status::Code { failed, dead, .. },
            ..
        }) = codes(&["pending", "done", "failed", "dead_letter"])
        else {
            panic!("codes")
        };
        assert_eq!(
            (failed.as_deref(), dead.as_deref()),
            (Some("failed"), Some("dead_letter"))
        );
    }

    #[test]
    fn unknown_codes_are_guessed_with_a_warning() {
        assert!(!codes(&[]).expect("a guess").guesses.is_empty());
        assert!(!codes(&["NEW"]).expect("a guess").guesses.is_empty());
        assert_eq!(codes(&["draft", "published"]), None, "no code means pending");
    }
}
