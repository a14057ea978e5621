//! A webhook receiver whose behaviour a test sets.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use uuid::Uuid;

/// What it does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// 200.
    Accepts,
    /// Reads the request and never answers.
    Hangs,
    /// 503.
    IsUnavailable,
    /// 503 for one request in twenty, 200 for all others, after a short pause.
    RejectsSome,
    /// 422 for a body with the word "poison", 200 for all others.
    RejectsPoison,
    /// 410 for a path with the word "gone", 429 with an hour to wait for one with "busy", 200 for all others.
    HasManyTenants,
}

/// A POST request.
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
    /// The event's id, from its header.
    pub(crate) fn id(&self) -> &str {
        let rest = self
            .head
            .split("pillarbox-id: ")
            .nth(1)
            .expect("it is always there");
        rest.lines().next().expect("a value")
    }
}

/// A receiver on its own port. It runs until the test ends.
pub(crate) struct Receiver {
    address: SocketAddr,
    behaviour: Arc<Mutex<Behaviour>>,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Receiver {
    pub(crate) fn start(behaviour: Behaviour) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), behaviour)
    }

    /// A receiver at this address.
    pub(crate) fn start_at(address: SocketAddr, behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let behaviour = Arc::new(Mutex::new(behaviour));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let shared = (Arc::clone(&behaviour), Arc::clone(&requests));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (behaviour, requests) = shared.clone();
                std::thread::spawn(move || serve(stream, &behaviour, &requests));
            }
        });
        Self {
            address,
            behaviour,
            requests,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/events", self.address)
    }

    /// The configuration of a destination with this name and this receiver.
    pub(crate) fn destination(&self, name: &str) -> String {
        format!(
            "[[destination]]\nname = \"{name}\"\ntype = \"webhook\"\nurl = \"{}\"\n",
            self.url()
        )
    }

    /// Changes its behaviour.
    pub(crate) fn set_behaviour(&self, behaviour: Behaviour) {
        *self.behaviour.lock().unwrap() = behaviour;
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

/// One in this many is rejected by [`Behaviour::RejectsSome`].
const ONE_IN: usize = 20;
/// How long it then takes to answer.
const PAUSE: Duration = Duration::from_millis(10);

/// Serves one connection until the other side closes it.
fn serve(stream: TcpStream, behaviour: &Mutex<Behaviour>, requests: &Mutex<Vec<Request>>) {
    let mut reader = BufReader::new(stream);
    while let Some((head, body)) = read(&mut reader) {
        let mut status = "200 OK";
        if head.starts_with("post") {
            let behaviour = *behaviour.lock().unwrap();
            let mut requests = requests.lock().unwrap();
            status = match behaviour {
                Behaviour::IsUnavailable => "503 Service Unavailable",
                Behaviour::RejectsSome if requests.len() % ONE_IN == ONE_IN - 1 => "503 Service Unavailable",
                Behaviour::RejectsPoison if body.contains("poison") => "422 Unprocessable Entity",
                Behaviour::HasManyTenants if head.starts_with("post /events/gone") => "410 Gone",
                Behaviour::HasManyTenants if head.starts_with("post /events/busy") => {
                    "429 Too Many Requests\r\nretry-after: 3600"
                }
                Behaviour::Accepts
                | Behaviour::RejectsSome
                | Behaviour::RejectsPoison
                | Behaviour::HasManyTenants
                | Behaviour::Hangs => "200 OK",
            };
            requests.push(Request {
                at: Instant::now(),
                head,
                body,
                accepted: behaviour != Behaviour::Hangs && status == "200 OK",
            });
            drop(requests);
            match behaviour {
                Behaviour::Hangs => continue,
                Behaviour::RejectsSome => std::thread::sleep(PAUSE),
                Behaviour::Accepts
                | Behaviour::IsUnavailable
                | Behaviour::RejectsPoison
                | Behaviour::HasManyTenants => {}
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
