//! A handler that ignores an error of the database must not lose its event.

use pillarbox_consume::{Database, HandlerError};

use crate::ledger::Ledger;

#[tokio::test]
async fn a_transaction_with_a_failed_statement_is_not_committed() {
    let ledger = Ledger::create().await;
    let mut transaction = Database::begin(&ledger.pool, std::time::Duration::from_secs(60))
        .await
        .unwrap();
    assert!(ledger.pool.check(&mut transaction).await.is_ok());
    let ignored = sqlx::query("select no_such_function()")
        .execute(&mut *transaction)
        .await;
    assert!(ignored.is_err());
    let error = ledger.pool.check(&mut transaction).await.unwrap_err();
    assert!(error.to_string().contains("aborted"), "{error}");
    // The event may be the cause, so the attempt counts.
    assert_eq!(HandlerError::from(error).outcome().name(), "retry");
    drop(transaction);
    ledger.drop().await;
}
