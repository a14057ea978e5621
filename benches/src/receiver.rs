//! A webhook receiver on threads of its own. It notes when each event arrived first, and accepts all of them.
//!
//! **If we die here** its threads end with the process.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use crate::failure::Failure;
use crate::latency::Arrivals;

/// See the module.
pub(crate) struct Receiver {
    address: SocketAddr,
    arrivals: Arrivals,
}

impl Receiver {
    pub(crate) fn start() -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let arrivals = Arrivals::default();
        let shared = arrivals.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let arrivals = shared.clone();
                std::thread::spawn(move || serve(stream, &arrivals));
            }
        });
        Ok(Self { address, arrivals })
    }

    /// The configuration of a destination.
    pub(crate) fn destination(&self) -> String {
        format!(
            "[[destination]]\nname = \"receiver\"\ntype = \"webhook\"\nurl = \"http://{}/\"\n",
            self.address
        )
    }

    /// When each event arrived.
    pub(crate) fn arrivals(&self) -> &Arrivals {
        &self.arrivals
    }
}

/// Serves one connection until the other side closes it.
fn serve(stream: TcpStream, arrivals: &Arrivals) {
    stream.set_nodelay(true).ok(); // a failure only costs time
    let mut reader = BufReader::new(stream);
    while let Some(head) = read(&mut reader) {
        if let Some(id) = header(&head, "pillarbox-id").and_then(|id| id.parse().ok()) {
            arrivals.note(id);
        }
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        if reader.get_mut().write_all(answer).is_err() {
            return;
        }
    }
}

/// The head of one request in lower case, or none if the other side has closed.
fn read(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let head = head.to_lowercase();
    let length = header(&head, "content-length").and_then(|length| length.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some(head)
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.find(|(key, _)| *key == name).map(|(_, value)| value)
}
