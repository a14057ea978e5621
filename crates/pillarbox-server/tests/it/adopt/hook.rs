//! A webhook's other end that answers as the test says, and remembers who called, and for how long.

use std::collections::HashMap;
use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde_json::Value;
use uuid::Uuid;

use crate::receiver::read;

/// One call.
#[derive(Debug, Clone)]
pub(super) struct Call {
    /// The event's id.
    pub(super) id: Uuid,
    /// In lower case.
    pub(super) head: String,
    pub(super) body: Value,
    /// How often this event has called: 1 for the first time.
    pub(super) turn: usize,
}

/// A call that was answered.
#[derive(Debug, Clone)]
pub(super) struct Visit {
    pub(super) call: Call,
    pub(super) status: u16,
    began: Instant,
    ended: Instant,
}

type Answer = dyn Fn(&Call) -> u16 + Send + Sync;

/// A receiver on a port of its own, for as long as the test runs.
pub(super) struct Hook {
    address: SocketAddr,
    visits: Arc<Mutex<Vec<Visit>>>,
}

impl Hook {
    /// Answers every call with the status that this says; it may take its time.
    pub(super) fn start(answer: impl Fn(&Call) -> u16 + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let visits = Arc::new(Mutex::new(Vec::new()));
        let turns = Arc::new(Mutex::new(HashMap::new()));
        let answer: Arc<Answer> = Arc::new(answer);
        let shared = Arc::clone(&visits);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (answer, turns, visits) = (answer.clone(), turns.clone(), shared.clone());
                std::thread::spawn(move || serve(stream, answer.as_ref(), &turns, &visits));
            }
        });
        Self { address, visits }
    }

    /// A destination of this name that leads here.
    pub(super) fn destination(&self, name: &str) -> String {
        format!(
            "[[destination]]\nname = \"{name}\"\ntype = \"webhook\"\nurl = \"http://{}/\"\n",
            self.address
        )
    }

    /// Every call that was answered, in the order of the answers.
    pub(super) fn visits(&self) -> Vec<Visit> {
        self.visits.lock().expect("no panic holds it").clone()
    }

    /// The events that were accepted, in the order of the answers.
    pub(super) fn accepted(&self) -> Vec<Uuid> {
        let visits = self.visits();
        let accepted = visits.iter().filter(|visit| visit.status == 200);
        accepted.map(|visit| visit.call.id).collect()
    }

    /// With which statuses this event was answered.
    pub(super) fn answers(&self, id: Uuid) -> Vec<u16> {
        let visits = self.visits();
        let own = visits.iter().filter(|visit| visit.call.id == id);
        own.map(|visit| visit.status).collect()
    }

    /// The events that called while their own earlier call was not answered yet.
    pub(super) fn overlapping(&self) -> Vec<Uuid> {
        let mut visits = self.visits();
        visits.sort_by_key(|visit| (visit.call.id, visit.began));
        let pairs = visits.windows(2);
        let overlap =
            pairs.filter(|pair| pair[0].call.id == pair[1].call.id && pair[1].began < pair[0].ended);
        overlap.map(|pair| pair[0].call.id).collect()
    }
}

/// Serves one connection until the other side closes it.
fn serve(
    stream: TcpStream,
    answer: &Answer,
    turns: &Mutex<HashMap<Uuid, usize>>,
    visits: &Mutex<Vec<Visit>>,
) {
    let mut reader = BufReader::new(stream);
    while let Some((head, body)) = read(&mut reader) {
        let status = if head.starts_with("post") {
            let began = Instant::now();
            let call = call(head, &body, turns);
            let status = answer(&call);
            let visit = Visit {
                call,
                status,
                began,
                ended: Instant::now(),
            };
            visits.lock().expect("no panic holds it").push(visit);
            status
        } else {
            200
        };
        let answer = format!("HTTP/1.1 {status} So\r\ncontent-length: 0\r\n\r\n");
        if reader.get_mut().write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn call(head: String, body: &str, turns: &Mutex<HashMap<Uuid, usize>>) -> Call {
    let id = header(&head, "pillarbox-id").expect("it is always there");
    let id = id.parse().expect("the event's id");
    let mut turns = turns.lock().expect("no panic holds it");
    let turn = turns.entry(id).or_insert(0);
    *turn += 1;
    Call {
        id,
        body: serde_json::from_str(body).expect("JSON"),
        turn: *turn,
        head,
    }
}

impl Call {
    /// A header, in lower case.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}
