//! A webhook's other end, with its moods.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use uuid::Uuid;

/// What to do with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    /// 200.
    Answers,
    /// Takes the request and never answers.
    Hangs,
    /// 503: not now.
    Refuses,
    /// 503 for one in twenty, 200 for all others, and takes its time to say so.
    Stumbles,
    /// 422 for a body with the word "poison" in it, which ends that event; 200 for all others.
    RejectsPoison,
}

/// A POST that came in.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) at: Instant,
    /// In lower case.
    pub(crate) head: String,
    pub(crate) body: String,
    /// Was it answered with 200?
    accepted: bool,
}

impl Request {
    /// The event's id, as the message says.
    pub(crate) fn id(&self) -> &str {
        let rest = self
            .head
            .split("pillarbox-id: ")
            .nth(1)
            .expect("it is always there");
        rest.lines().next().expect("a value")
    }
}

/// A receiver on a port of its own, for as long as the test runs.
pub(crate) struct Receiver {
    address: SocketAddr,
    mood: Arc<Mutex<Mood>>,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Receiver {
    pub(crate) fn start(mood: Mood) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mood = Arc::new(Mutex::new(mood));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let shared = (Arc::clone(&mood), Arc::clone(&requests));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (mood, requests) = shared.clone();
                std::thread::spawn(move || serve(stream, &mood, &requests));
            }
        });
        Self {
            address,
            mood,
            requests,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/events", self.address)
    }

    /// A destination of this name that leads here.
    pub(crate) fn destination(&self, name: &str) -> String {
        format!(
            "[[destination]]\nname = \"{name}\"\ntype = \"webhook\"\nurl = \"{}\"\n",
            self.url()
        )
    }

    /// From now on so.
    pub(crate) fn becomes(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    /// All POST requests so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// The bodies of all POST requests so far.
    pub(crate) fn bodies(&self) -> Vec<String> {
        self.requests().into_iter().map(|request| request.body).collect()
    }

    /// The bodies that were answered with 200, in the order in which they came.
    pub(crate) fn accepted(&self) -> Vec<String> {
        let accepted = self.requests().into_iter().filter(|request| request.accepted);
        accepted.map(|request| request.body).collect()
    }

    /// The ids of the events that were accepted, in the order in which they came.
    pub(crate) fn ledger(&self) -> Vec<Uuid> {
        let requests = self.requests();
        let accepted = requests.iter().filter(|request| request.accepted);
        accepted
            .map(|request| request.id().parse().expect("the event's id"))
            .collect()
    }
}

/// One in so many is refused by a receiver that stumbles.
const STUMBLES: usize = 20;
/// How long such a receiver takes for an answer.
const SLOWNESS: Duration = Duration::from_millis(10);

/// Serves one connection until the other side closes it.
fn serve(stream: TcpStream, mood: &Mutex<Mood>, requests: &Mutex<Vec<Request>>) {
    let mut reader = BufReader::new(stream);
    while let Some((head, body)) = read(&mut reader) {
        let mut status = "200 OK";
        if head.starts_with("post") {
            let mood = *mood.lock().unwrap();
            let mut requests = requests.lock().unwrap();
            status = match mood {
                Mood::Refuses => "503 Service Unavailable",
                Mood::Stumbles if requests.len() % STUMBLES == STUMBLES - 1 => "503 Service Unavailable",
                Mood::RejectsPoison if body.contains("poison") => "422 Unprocessable Entity",
                Mood::Answers | Mood::Stumbles | Mood::RejectsPoison | Mood::Hangs => "200 OK",
            };
            requests.push(Request {
                at: Instant::now(),
                head,
                body,
                accepted: mood != Mood::Hangs && status == "200 OK",
            });
            drop(requests);
            match mood {
                Mood::Hangs => continue,
                Mood::Stumbles => std::thread::sleep(SLOWNESS),
                Mood::Answers | Mood::Refuses | Mood::RejectsPoison => {}
            }
        }
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
        if reader.get_mut().write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// One request, its head in lower case; none if the other side has closed.
pub(crate) fn read(reader: &mut BufReader<TcpStream>) -> Option<(String, String)> {
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
