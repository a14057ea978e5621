//! A handler that swallows an error of the database must not lose its event.

use pillarbox_consume::{Database, HandlerError};

use crate::books::Books;

#[tokio::test]
async fn a_transaction_in_which_a_statement_failed_is_not_committed_as_if_nothing_was() {
    let books = Books::open().await;
    let mut transaction = Database::begin(&books.pool).await.unwrap();
    assert!(books.pool.check(&mut transaction).await.is_ok());
    let swallowed = sqlx::query("select no_such_function()")
        .execute(&mut *transaction)
        .await;
    assert!(swallowed.is_err());
    let error = books.pool.check(&mut transaction).await.unwrap_err();
    assert!(error.to_string().contains("aborted"), "{error}");
    // It may be the event's fault: the attempt counts.
    assert_eq!(HandlerError::from(error).outcome().name(), "retry");
    drop(transaction);
    books.close().await;
}
