//! Clients that take every connection, send their requests slowly, or under a foreign name: events are delivered all the same.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use pillarbox_testkit::wait::until_ok_blocking;

use crate::command::run_with_input;
use crate::fixture::Fixture;
use crate::http::request_as;
use crate::receiver::{Behaviour, Receiver};

const EVENTS: usize = 300;

/// Enqueues events, and waits until all have arrived. Returns how long that took.
fn deliver(fixture: &Fixture, receiver: &Receiver) -> Duration {
    let before = receiver.accepted().len();
    let events = "{\"namespace\": \"shop\", \"topic\": \"orders\", \"payload\": 1}\n".repeat(EVENTS);
    let began = Instant::now();
    run_with_input(fixture.path(), &["enqueue", "--ndjson"], &events).success();
    until_ok_blocking("all arrive", || {
        let arrived = receiver.accepted().len() - before;
        if arrived == EVENTS {
            Ok(())
        } else {
            Err(format!("{arrived} arrived"))
        }
    });
    began.elapsed()
}

/// Opens connections that send this and then nothing. A server may end one at any time.
fn clients(address: &str, count: usize, text: &str) -> Vec<TcpStream> {
    let open = |_| {
        let mut stream = TcpStream::connect(address).expect("the backlog has room");
        stream.write_all(text.as_bytes()).ok();
        stream
    };
    (0..count).map(open).collect()
}

#[test]
fn slow_clients_many_connections_and_wrong_hosts_delay_no_delivery() {
    let receiver = Receiver::start(Behaviour::Accepts);
    let fixture = Fixture::postgres(&receiver.destination("hook"));
    let daemon = fixture.ready();
    let address = daemon.address();
    let calm = deliver(&fixture, &receiver);

    assert_eq!(
        request_as(&address, "evil.example.com", "GET", "/api/v1/stats").status,
        421
    );
    let slow_headers = "GET /api/v1/stats HTTP/1.1\r\nhost: localhost\r\nx-slow: ";
    let slow_body = "POST /api/v1/stats HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\n{";
    let wrong_host = "GET /api/v1/stats HTTP/1.1\r\nhost: evil.example.com\r\n\r\n";
    let mut open = Vec::new();
    for attack in [slow_headers, slow_body, wrong_host] {
        open.extend(clients(&address, 200, attack)); // more than the daemon serves at once
    }
    let attacked = deliver(&fixture, &receiver);
    // Within noise: a busy machine takes several times as long as a quiet one.
    assert!(
        attacked < calm * 5 + Duration::from_secs(5),
        "{attacked:?} instead of {calm:?}"
    );
    drop(open);
    // The API is there again.
    daemon.wait_for_stats("all delivered", |stats| stats["delivered"] == 2 * EVENTS);
    daemon.stop_blocking();
}
