//! A network that misbehaves on purpose: a TCP proxy in the test's own process.
//!
//! It stands between a client and its server. It can cut connections, refuse new ones, and delay or withhold answers.
//! It ends when it is dropped.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::environment::authority;

/// How the network behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// As it should.
    Open,
    /// What is sent arrives; no answer comes back.
    Mute,
    /// Nothing arrives in either direction, and no connection is closed.
    Hole,
    /// The port is closed.
    Refuse,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    mode: Mode,
    /// Connections made under an earlier number are cut.
    era: u64,
}

/// Faults that a proxy has from its start to its end.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Every answer of the server takes this long. Answers stay in order.
    pub delay: Duration,
    /// A connection on which a client sends these bytes is cut, before the server receives them.
    pub cut_on: Option<Vec<u8>>,
}

/// The proxy.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    state: Arc<watch::Sender<State>>,
    counts: Arc<Counts>,
    /// Is the port open?
    listening: watch::Receiver<bool>,
    /// Dropped with the proxy, which ends all of its tasks.
    _tasks: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Counts {
    accepted: AtomicUsize,
    cut: AtomicUsize,
}

impl Proxy {
    /// A proxy on a free port of 127.0.0.1 in front of `target` (`host:port`).
    pub async fn start(target: impl Into<String>) -> Self {
        Self::start_with(target, Faults::default()).await
    }

    /// A proxy with these faults.
    pub async fn start_with(target: impl Into<String>, faults: Faults) -> Self {
        let port = bound(SocketAddr::from(([127, 0, 0, 1], 0)));
        let address = port.local_addr().expect("a bound socket has an address");
        let (state, _) = watch::channel(State {
            mode: Mode::Open,
            era: 0,
        });
        let state = Arc::new(state);
        let (listens, listening) = watch::channel(true);
        let counts = Arc::new(Counts::default());
        let route = Route {
            target: target.into(),
            faults,
            counts: Arc::clone(&counts),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(listen(
            port,
            listener(address),
            Arc::new(route),
            Arc::clone(&state),
            listens,
        ));
        Self {
            address,
            state,
            counts,
            listening,
            _tasks: tasks,
        }
    }

    /// Where to connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// This URL of the server, by way of the proxy.
    pub fn url(&self, server: &str) -> String {
        server.replace(authority(server), &self.address.to_string())
    }

    /// How many connections were made so far.
    pub fn accepted(&self) -> usize {
        self.counts.accepted.load(Ordering::SeqCst)
    }

    /// How many connections were cut by [`Faults::cut_on`].
    pub fn cut_by_content(&self) -> usize {
        self.counts.cut.load(Ordering::SeqCst)
    }

    /// Closes every connection. New ones are possible.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.era += 1);
    }

    /// Closes every connection, and the port as well.
    pub async fn refuse(&self) {
        self.state.send_modify(|state| {
            state.era += 1;
            state.mode = Mode::Refuse;
        });
        self.until_listening(false).await;
    }

    /// Lets what is sent arrive and withholds every answer, on old connections and new ones.
    pub fn mute(&self) {
        self.state.send_modify(|state| state.mode = Mode::Mute);
    }

    /// Lets nothing through in either direction, without closing anything.
    pub fn black_hole(&self) {
        self.state.send_modify(|state| state.mode = Mode::Hole);
    }

    /// Everything works again. Withheld answers arrive now.
    pub async fn restore(&self) {
        self.state.send_modify(|state| state.mode = Mode::Open);
        self.until_listening(true).await;
    }

    async fn until_listening(&self, wanted: bool) {
        let mut listening = self.listening.clone();
        let reached = listening.wait_for(|now| *now == wanted).await;
        reached.expect("the proxy lives as long as its owner");
    }
}

/// A socket at this address, beside others of this process. While it does not listen, it reserves the port.
fn bound(address: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_reuseport(true).expect("an option of every socket");
    socket.bind(address).expect("the port is free, or ours");
    socket
}

fn listener(address: SocketAddr) -> TcpListener {
    bound(address)
        .listen(1024)
        .expect("no other socket listens on it")
}

/// Where connections go, and what happens to them.
struct Route {
    target: String,
    faults: Faults,
    counts: Arc<Counts>,
}

async fn listen(
    port: TcpSocket,
    mut listener: TcpListener,
    route: Arc<Route>,
    state: Arc<watch::Sender<State>>,
    listens: watch::Sender<bool>,
) {
    let address = port.local_addr().expect("a bound socket has an address");
    let mut connections = JoinSet::new();
    let mut changes = state.subscribe();
    loop {
        // Only the fact is kept: the guard that `wait_for` returns would lock the state.
        let refused = async { changes.wait_for(|now| now.mode == Mode::Refuse).await.is_ok() };
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { continue };
                route.counts.accepted.fetch_add(1, Ordering::SeqCst);
                let era = state.borrow().era;
                connections.spawn(connection(client, Arc::clone(&route), state.subscribe(), era));
            }
            _ = refused => {
                drop(listener);
                listens.send_replace(false);
                if state.subscribe().wait_for(|now| now.mode != Mode::Refuse).await.is_err() {
                    return;
                }
                listener = self::listener(address);
                listens.send_replace(true);
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn connection(client: TcpStream, route: Arc<Route>, state: watch::Receiver<State>, era: u64) {
    let Ok(server) = TcpStream::connect(&route.target).await else {
        return;
    };
    client.set_nodelay(true).ok();
    server.set_nodelay(true).ok();
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = server.into_split();
    let mut cut = state.clone();
    let requests = Pump {
        state: state.clone(),
        era,
        passes: &[Mode::Open, Mode::Mute],
        delay: Duration::ZERO,
        cut_on: route.faults.cut_on.as_deref(),
    };
    let answers = Pump {
        state,
        era,
        passes: &[Mode::Open],
        delay: route.faults.delay,
        cut_on: None,
    };
    tokio::select! {
        was_cut = requests.run(client_read, server_write) => {
            route.counts.cut.fetch_add(usize::from(was_cut), Ordering::SeqCst);
        }
        _ = answers.run(server_read, client_write) => {}
        _ = cut.wait_for(|now| now.era != era) => {}
    }
}

/// One direction of a connection.
struct Pump<'a> {
    state: watch::Receiver<State>,
    era: u64,
    /// Waits in every other mode.
    passes: &'a [Mode],
    delay: Duration,
    cut_on: Option<&'a [u8]>,
}

impl Pump<'_> {
    /// Copies until one side closes. True if it found the bytes to cut on. A cut connection passes nothing on, however soon
    /// the proxy is restored.
    async fn run(mut self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> bool {
        let mut buffer = vec![0; 64 * 1024];
        let mut recent = Vec::new();
        while let Ok(read) = from.read(&mut buffer).await {
            if !self.delay.is_zero() {
                tokio::time::sleep(self.delay).await;
            }
            let (era, passes) = (self.era, self.passes);
            let allowed = self
                .state
                .wait_for(|now| now.era != era || passes.contains(&now.mode));
            if !allowed.await.is_ok_and(|now| now.era == era) {
                return false;
            }
            if self
                .cut_on
                .is_some_and(|bytes| contains(&mut recent, &buffer[..read], bytes))
            {
                return true;
            }
            if read == 0 || to.write_all(&buffer[..read]).await.is_err() {
                return false;
            }
        }
        false
    }
}

/// Are the bytes in the chunk, or in the end of the recent ones and the chunk?
fn contains(recent: &mut Vec<u8>, chunk: &[u8], bytes: &[u8]) -> bool {
    recent.extend_from_slice(chunk);
    let found = recent.windows(bytes.len()).any(|window| window == bytes);
    let keep = recent.len().min(bytes.len() - 1);
    recent.drain(..recent.len() - keep);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    async fn echo() -> (JoinSet<()>, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.into_split();
                    tokio::io::copy(&mut read, &mut write).await.ok();
                });
            }
        });
        (tasks, address)
    }

    async fn exchange(stream: &mut TcpStream) -> std::io::Result<[u8; 1]> {
        let mut answer = [0];
        stream.write_all(b"x").await?;
        stream.read_exact(&mut answer).await?;
        Ok(answer)
    }

    #[tokio::test]
    async fn a_cut_connection_is_closed_and_a_new_one_works() {
        let (_server, address) = echo().await;
        let proxy = Proxy::start(address.to_string()).await;
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(exchange(&mut stream).await.unwrap(), *b"x");
        proxy.cut();
        assert!(exchange(&mut stream).await.is_err());
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(exchange(&mut stream).await.unwrap(), *b"x");
        proxy.refuse().await;
        assert!(TcpStream::connect(proxy.address()).await.is_err());
        let other = TcpListener::bind(proxy.address()).await;
        assert!(other.is_err(), "the proxy keeps the port");
        proxy.restore().await;
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(exchange(&mut stream).await.unwrap(), *b"x");
    }

    #[tokio::test]
    async fn a_withheld_answer_arrives_after_the_proxy_is_restored() {
        let (_server, address) = echo().await;
        let proxy = Proxy::start(address.to_string()).await;
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(exchange(&mut stream).await.unwrap(), *b"x");
        proxy.mute();
        let answer = exchange(&mut stream);
        tokio::pin!(answer);
        assert!((&mut answer).now_or_never().is_none());
        proxy.restore().await;
        assert_eq!(answer.await.unwrap(), *b"x");
    }

    #[tokio::test]
    async fn bytes_to_cut_on_are_found_across_packets_and_never_passed_on() {
        let (_server, address) = echo().await;
        let faults = Faults {
            delay: Duration::from_millis(1),
            cut_on: Some(b"poison".to_vec()),
        };
        let proxy = Proxy::start_with(address.to_string(), faults).await;
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        let mut answer = [0; 4];
        stream.write_all(b"pois").await.unwrap();
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, *b"pois");
        stream.write_all(b"on").await.unwrap();
        assert!(stream.read_exact(&mut answer).await.is_err());
        assert_eq!(proxy.cut_by_content(), 1);
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(exchange(&mut stream).await.unwrap(), *b"x");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_cut_connection_passes_nothing_on_however_soon_the_proxy_is_restored() {
        let (_server, address) = echo().await;
        let proxy = Proxy::start(address.to_string()).await;
        for _ in 0..200 {
            let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
            assert_eq!(exchange(&mut stream).await.unwrap(), *b"x");
            proxy.black_hole();
            stream.write_all(&[b'y'; 1000]).await.unwrap();
            proxy.cut();
            proxy.restore().await;
            assert!(stream.read_exact(&mut [0]).await.is_err());
        }
    }
}
