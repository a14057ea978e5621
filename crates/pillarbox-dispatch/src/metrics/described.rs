//! What each metric is, for the exporter. docs/operations/metrics.md says more.

use metrics::{describe_counter, describe_gauge, describe_histogram};

/// Describes the metrics of a worker to the recorder.
pub(super) fn describe() {
    describe_counter!(
        "pillarbox_attempts_total",
        "Attempts to deliver that ended, by their outcome"
    );
    describe_counter!(
        "pillarbox_retries_total",
        "Failed attempts after which the event is tried again"
    );
    describe_counter!("pillarbox_dead_total", "Rows that this worker made dead");
    describe_counter!("pillarbox_unrouted_total", "Events that no route matched");
    describe_counter!(
        "pillarbox_lost_leases_total",
        "Rows whose lease was lost before they were sent or settled"
    );
    describe_counter!(
        "pillarbox_store_errors_total",
        "Calls to the database that failed"
    );
    describe_counter!("pillarbox_manual_retries_total", "Rows that operators retried");
    describe_gauge!(
        "pillarbox_breaker_state",
        "The breaker: 0 closed, 1 half-open, 2 open"
    );
    describe_gauge!(
        "pillarbox_destination_up",
        "Did the last attempt or health check reach the destination?"
    );
    describe_gauge!(
        "pillarbox_database_up",
        "Does the database answer and accept statements?"
    );
    describe_histogram!("pillarbox_lag_seconds", "From enqueue to delivered");
    describe_histogram!(
        "pillarbox_processing_seconds",
        "From the claim to the settlement of an attempt"
    );
    describe_histogram!("pillarbox_claim_rows", "Rows of one claim");
    describe_histogram!("pillarbox_claim_seconds", "Time of one claim in the database");
    describe_histogram!("pillarbox_settle_rows", "Rows of one settlement");
    describe_histogram!(
        "pillarbox_settle_seconds",
        "Time of one settlement in the database"
    );
    describe_counter!("pillarbox_pruned_total", "Rows that retention deleted");
    describe_histogram!("pillarbox_prune_seconds", "Time of one batch of retention");
    describe_gauge!(
        "pillarbox_events",
        "Rows by destination and status; delivered ones are not counted"
    );
    describe_gauge!(
        "pillarbox_oldest_pending_seconds",
        "How long the oldest due row has been due"
    );
    describe_gauge!(
        "pillarbox_blocked_keys",
        "Ordering keys whose first unfinished row is dead"
    );
    describe_gauge!(
        "pillarbox_stale_processing",
        "Rows in processing for more than ten minutes"
    );
    describe_gauge!(
        "pillarbox_oldest_processing_seconds",
        "How long the oldest row in processing has been claimed"
    );
    describe_gauge!(
        "pillarbox_workers_alive",
        "Workers whose last heartbeat arrived in time"
    );
    describe_gauge!("pillarbox_adopted_rows", "Rows of adopted tables by state");
    describe_gauge!("pillarbox_sagas", "Sagas that have not ended");
    describe_gauge!(
        "pillarbox_destination_paused",
        "1 if an operator paused it, or the receiver disabled it"
    );
    describe_gauge!(
        "pillarbox_sample_age_seconds",
        "Age of the sample that the gauges of the table come from"
    );
}
