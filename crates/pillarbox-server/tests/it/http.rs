//! One HTTP request, without a client library.

use std::io::{Read, Write};
use std::net::TcpStream;

use pillarbox_testkit::wait::TIMEOUT;

/// An HTTP response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// Sends a request and reads the response.
pub(crate) fn request(address: &str, method: &str, path: &str) -> Response {
    request_as(address, address, method, path)
}

/// The same with another name in `Host`.
pub(crate) fn request_as(address: &str, host: &str, method: &str, path: &str) -> Response {
    let mut stream = TcpStream::connect(address).expect("the server accepts connections");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"
    )
    .expect("the server reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("the server answers");
    let (head, body) = text.split_once("\r\n\r\n").expect("an HTTP response");
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .expect("a status");
    Response {
        status,
        head: head.to_lowercase(),
        body: body.to_owned(),
    }
}
