//! A webhook's other end: answers 200, or takes the request and never answers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What to do with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    Answers,
    Hangs,
}

/// A receiver on a port of its own, for as long as the test runs.
pub(crate) struct Receiver {
    address: SocketAddr,
    bodies: Arc<Mutex<Vec<String>>>,
}

impl Receiver {
    pub(crate) fn start(mood: Mood) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let bodies = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&bodies);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let bodies = Arc::clone(&shared);
                std::thread::spawn(move || serve(stream, mood, &bodies));
            }
        });
        Self { address, bodies }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/events", self.address)
    }

    /// The bodies of all POST requests so far.
    pub(crate) fn bodies(&self) -> Vec<String> {
        self.bodies.lock().unwrap().clone()
    }
}

/// Serves one connection until the other side closes it.
fn serve(stream: TcpStream, mood: Mood, bodies: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream);
    while let Some((head, body)) = request(&mut reader) {
        if head.starts_with("post") {
            bodies.lock().unwrap().push(body);
            if mood == Mood::Hangs {
                continue;
            }
        }
        if reader
            .get_mut()
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            .is_err()
        {
            return;
        }
    }
}

fn request(reader: &mut BufReader<TcpStream>) -> Option<(String, String)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let head = head.to_lowercase();
    let length = head
        .split("content-length: ")
        .nth(1)
        .and_then(|rest| rest.lines().next()?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some((head, String::from_utf8_lossy(&body).into_owned()))
}
