//! Where rows go before retention deletes them, and how they come back.
//!
//! A row is a JSON object of its columns, as its own store writes it. Only a store of the same kind can read it again.
//!
//! **If we die here** between the archive and the commit, the rows are archived and still there. They are archived again with
//! the next deletion, and a restore leaves out what exists.

use std::fmt::Debug;

use async_trait::async_trait;

use crate::store::StoreError;

/// Keeps rows that are about to be deleted.
#[async_trait]
pub trait Archive: Debug + Send + Sync + 'static {
    /// Writes rows so that they survive a crash. They are deleted only after this has succeeded.
    ///
    /// # Errors
    /// When they could not be written. Nothing is deleted then.
    async fn write(&self, rows: Vec<String>) -> Result<(), StoreError>;
}

/// How many bytes of content a batch has at most, if it is archived. One row may be larger.
pub const MAX_BYTES: i64 = 16 * 1024 * 1024;

/// How many rows of a list of sizes fit into a batch: at least one.
pub(crate) fn fitting(sizes: &[i64]) -> usize {
    let mut left = MAX_BYTES;
    let fitting = sizes.iter().take_while(|size| {
        left = left.saturating_sub(**size);
        left >= 0
    });
    fitting.count().max(1)
}

/// What became of archived rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Restored {
    /// Rows that are in the outbox again.
    pub restored: u64,
    /// Rows that were left out: their id, or their dedupe key, is there.
    pub known: u64,
}

/// Why an archived row is refused, or `None`. Only history is restored: nothing that would be sent again.
pub(crate) fn refusal(row: &str) -> Option<String> {
    let row: serde_json::Value = match serde_json::from_str(row) {
        Ok(row) => row,
        Err(error) => return Some(format!("invalid JSON: {error}")),
    };
    let status = row.get("status").and_then(serde_json::Value::as_str);
    match status {
        Some("delivered" | "dead") => None,
        Some(status) => Some(format!(
            "its status is {status:?}; only delivered and dead rows are restored"
        )),
        None => Some("it has no status".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_fits_or_has_one_row() {
        assert_eq!(fitting(&[1, 2, 3]), 3);
        assert_eq!(fitting(&[MAX_BYTES, 1]), 1);
        assert_eq!(fitting(&[MAX_BYTES + 1, 1]), 1);
        assert_eq!(fitting(&[]), 1);
    }

    #[test]
    fn only_history_is_restored() {
        assert_eq!(refusal(r#"{"status": "dead"}"#), None);
        for row in [
            r#"{"status": "pending"}"#,
            r#"{"status": "processing"}"#,
            "{}",
            "[]",
            "no",
        ] {
            assert!(refusal(row).is_some(), "{row}");
        }
    }
}
