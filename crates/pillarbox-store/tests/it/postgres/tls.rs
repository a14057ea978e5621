//! A server that must be verified gets nothing before it is, and the log says what a connection is worth.

use std::time::Duration;

use pillarbox_store::Store;
use pillarbox_store::stores::postgres::{Options, Postgres};
use pillarbox_testkit::CapturedLogs;
use pillarbox_testkit::environment::variable;
use pillarbox_testkit::tls::{FLAWS, Flaw, Greeting, TlsServer};
use pillarbox_testkit::wait::until;

/// A store that connects to the port with these parameters and the server's authority.
fn store(server: &TlsServer, parameters: &str) -> Postgres {
    let (port, ca) = (server.port(), server.ca_file());
    let url = format!(
        "postgres://u:hunter2@localhost:{port}/d?{parameters}&sslrootcert={}",
        ca.display()
    );
    let options = Options {
        timeout: Duration::from_secs(6),
        ..Options::default()
    };
    Postgres::new(&url, options).expect("a sound URL")
}

/// `require` with an authority is `verify-ca`: any name will do.
#[tokio::test]
async fn a_server_with_a_flawed_certificate_gets_nothing() {
    for flaw in FLAWS {
        for (mode, is_accepted) in [
            ("sslmode=verify-full", false),
            ("sslmode=verify-ca", flaw == Flaw::WrongName),
            ("sslmode=require", flaw == Flaw::WrongName),
            ("sslmode=prefer", flaw == Flaw::WrongName),
        ] {
            let server = TlsServer::start(flaw, Greeting::Postgres).await;
            let error = store(&server, mode)
                .check()
                .await
                .expect_err("no PostgreSQL")
                .to_string();
            assert_eq!(server.accepted() > 0, is_accepted, "{mode} {flaw:?}: {error}");
            if !is_accepted {
                assert!(error.contains("certificate"), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn a_server_with_a_sound_certificate_gets_the_first_bytes() {
    let server = TlsServer::start(Flaw::None, Greeting::Postgres).await;
    let store = store(&server, "sslmode=verify-full");
    tokio::select! {
        () = until("the client speaks over TLS", async || server.accepted() > 0) => {}
        () = async { store.check().await.ok(); std::future::pending().await } => {}
    }
}

#[tokio::test]
async fn one_line_says_whether_connections_are_encrypted_and_verified() {
    let (url, ca) = (
        variable("PILLARBOX_TEST_POSTGRES_URL"),
        variable("PILLARBOX_TEST_CA_FILE"),
    );
    for (parameters, encrypted, verified) in [
        ("sslmode=disable".to_owned(), "false", "false"),
        ("sslmode=prefer".to_owned(), "true", "false"),
        ("sslmode=require".to_owned(), "true", "false"),
        (format!("sslmode=verify-full&sslrootcert={ca}"), "true", "true"),
    ] {
        let logs = CapturedLogs::start();
        let store = Postgres::new(&format!("{url}?{parameters}"), Options::default()).expect("a sound URL");
        for _ in 0..2 {
            store.connection().await.expect("it connects");
        }
        let lines = logs.with("database connected");
        assert_eq!(lines.len(), 1, "{parameters}");
        assert_eq!(lines[0].field("encrypted"), Some(encrypted), "{parameters}");
        assert_eq!(lines[0].field("verified"), Some(verified), "{parameters}");
        store.close().await;
    }
}

#[tokio::test]
async fn a_store_is_printed_without_its_password() {
    let store = Postgres::new("postgres://u:hunter2@127.0.0.1:1/d", Options::default()).expect("a sound URL");
    let printed = format!("{store:?}");
    assert!(
        printed.contains("u@127.0.0.1:1/d") && !printed.contains("hunter2"),
        "{printed}"
    );
}
