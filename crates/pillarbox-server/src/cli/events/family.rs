//! The family of an event: its rows for all destinations.

use pillarbox_store::operate::Record;

/// The status of the family: the first of these that applies.
pub(super) fn status(rows: &[Record]) -> &'static str {
    let any = |status: &str| rows.iter().any(|row| row.status == status);
    let failed = |row: &Record| row.status == "pending" && row.attempts > 0;
    let ours = ["pending", "processing", "delivered", "dead"];
    if any("processing") {
        "processing"
    } else if rows.iter().any(failed) {
        "failed"
    } else if any("pending") {
        "pending"
    } else if any("dead") {
        "dead"
    } else if rows.iter().any(|row| !ours.contains(&row.status.as_str())) {
        "unknown"
    } else {
        "completed"
    }
}

#[cfg(test)]
mod tests {
    use pillarbox::Envelope;
    use time::OffsetDateTime;
    use uuid::Uuid;

    use super::*;

    fn row((status, attempts): (&str, i32)) -> Record {
        Record {
            id: Uuid::nil(),
            seq: 1,
            event: Envelope::default(),
            destination: None,
            status: status.to_owned(),
            unordered: false,
            attempts,
            max_attempts: None,
            next_attempt_at: OffsetDateTime::UNIX_EPOCH,
            locked_by: None,
            locked_until: None,
            last_error: None,
            created_at: OffsetDateTime::UNIX_EPOCH,
            updated_at: OffsetDateTime::UNIX_EPOCH,
            delivered_at: None,
            payload: None,
            body_bytes: None,
        }
    }

    #[test]
    fn the_status_that_needs_attention_first_is_that_of_the_family() {
        let (processing, failed, fresh) = (("processing", 1), ("pending", 2), ("pending", 0));
        let (dead, delivered, foreign) = (("dead", 3), ("delivered", 1), ("NEW", 0));
        for (rows, expected) in [
            (vec![delivered, dead, fresh, failed, processing], "processing"),
            (vec![delivered, dead, fresh, failed], "failed"),
            (vec![delivered, dead, fresh], "pending"),
            (vec![delivered, dead], "dead"),
            (vec![delivered, foreign], "unknown"),
            (vec![delivered, delivered], "completed"),
        ] {
            let rows: Vec<Record> = rows.into_iter().map(row).collect();
            assert_eq!(status(&rows), expected);
        }
    }
}
