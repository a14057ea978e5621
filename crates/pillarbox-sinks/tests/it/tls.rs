//! No sink talks to a server with a certificate that is expired, for another host, or of an unknown authority.

#![cfg(feature = "full")]

use std::path::Path;
use std::time::Duration;

use pillarbox_testkit::tls::{FLAWS, Flaw, Greeting, TlsServer};
use pillarbox_testkit::wait::until;

use crate::environment::build;

/// Every sink with TLS, its greeting, and what its error says about a certificate.
const SINKS: [(&str, Greeting, &str); 5] = [
    (
        "type = \"rabbitmq\"\nurl = \"amqps://u:p@localhost:PORT\"\nexchange = \"e\"\nconnect_timeout = \"5s\"",
        Greeting::None,
        "certificate",
    ),
    (
        "type = \"nats\"\nurl = \"tls://u:p@localhost:PORT\"\nconnect_timeout = \"5s\"",
        Greeting::Nats,
        "certificate",
    ),
    (
        "type = \"redis\"\nurl = \"rediss://u:p@localhost:PORT\"\nconnect_timeout = \"5s\"",
        Greeting::None,
        "certificate",
    ),
    (
        "type = \"webhook\"\nurl = \"https://localhost:PORT/hook\"\nconnect_timeout = \"5s\"\nbearer = \"token\"",
        Greeting::None,
        "certificate",
    ),
    (
        "type = \"kafka\"\nbrokers = \"localhost:PORT\"\nsasl = { user = \"u\", password = \"p\" }",
        Greeting::None,
        "SSL",
    ),
];

/// Checks the sink once, which connects. It cannot succeed, because the server has no protocol.
async fn check(text: &str, port: u16, ca_file: &Path) -> String {
    let text = text.replace("PORT", &port.to_string());
    let text = format!("{text}\ntls = {{ ca_file = \"{}\" }}", ca_file.display());
    let sink = build(toml::from_str(&text).unwrap(), "").await;
    let checked = tokio::time::timeout(Duration::from_secs(20), sink.check()).await;
    match checked {
        Ok(answer) => answer.unwrap_err(),
        Err(_) => "no answer".to_owned(),
    }
}

#[tokio::test]
async fn a_server_with_a_flawed_certificate_gets_nothing() {
    for (text, greeting, word) in SINKS {
        for flaw in FLAWS {
            let server = TlsServer::start(flaw, greeting).await;
            let error = check(text, server.port(), &server.ca_file()).await;
            assert!(error.contains(word), "{text} {flaw:?}: {error}");
            assert_eq!(server.accepted(), 0, "{text} {flaw:?}");
        }
    }
}

/// Without this, a sink that cannot connect at all would pass.
#[tokio::test]
async fn a_server_with_a_sound_certificate_gets_the_first_bytes() {
    for (text, greeting, _) in SINKS {
        let server = TlsServer::start(Flaw::None, greeting).await;
        let ca_file = server.ca_file();
        let checking = check(text, server.port(), &ca_file);
        tokio::select! {
            () = until("the client speaks over TLS", async || server.accepted() > 0) => {}
            () = async { checking.await; std::future::pending().await } => {}
        }
    }
}
