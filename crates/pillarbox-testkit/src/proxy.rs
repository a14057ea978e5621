//! A network that misbehaves on purpose: a TCP proxy in the test's own process.
//!
//! It stands between a sink and its place, and can cut connections, refuse new ones and withhold
//! answers. Ends with its owner.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How the network behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// As it should.
    Open,
    /// What is sent arrives; no answer comes back.
    Mute,
    /// Nothing arrives in either direction, and nobody is told.
    Hole,
    /// Nobody listens.
    Refuse,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Weather {
    mode: Mode,
    /// Connections made under an earlier number are cut.
    era: u64,
}

/// The proxy.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    weather: Arc<watch::Sender<Weather>>,
    accepted: Arc<AtomicUsize>,
    /// Does anybody listen?
    listening: watch::Receiver<bool>,
    /// Dropped with the proxy, which ends all of its tasks.
    _tasks: JoinSet<()>,
}

impl Proxy {
    /// A proxy on a free port of 127.0.0.1 in front of `target` (`host:port`).
    pub async fn start(target: impl Into<String>) -> Self {
        let port = bound(SocketAddr::from(([127, 0, 0, 1], 0)));
        let address = port.local_addr().expect("a bound socket has an address");
        let (weather, _) = watch::channel(Weather {
            mode: Mode::Open,
            era: 0,
        });
        let weather = Arc::new(weather);
        let (listens, listening) = watch::channel(true);
        let accepted = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        tasks.spawn(listen(
            port,
            listener(address),
            target.into(),
            weather.clone(),
            listens,
            accepted.clone(),
        ));
        Self {
            address,
            weather,
            accepted,
            listening,
            _tasks: tasks,
        }
    }

    /// Where to connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections were made so far.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// Closes every connection. New ones are possible.
    pub fn cut(&self) {
        self.weather.send_modify(|weather| weather.era += 1);
    }

    /// Closes every connection, and the port as well.
    pub async fn refuse(&self) {
        self.weather.send_modify(|weather| {
            weather.era += 1;
            weather.mode = Mode::Refuse;
        });
        self.until_listening(false).await;
    }

    /// Lets what is sent arrive and withholds every answer, on old connections and new ones.
    pub fn mute(&self) {
        self.weather.send_modify(|weather| weather.mode = Mode::Mute);
    }

    /// Lets nothing through in either direction, without closing anything.
    pub fn black_hole(&self) {
        self.weather.send_modify(|weather| weather.mode = Mode::Hole);
    }

    /// Everything works again. Withheld answers arrive now.
    pub async fn restore(&self) {
        self.weather.send_modify(|weather| weather.mode = Mode::Open);
        self.until_listening(true).await;
    }

    async fn until_listening(&self, wanted: bool) {
        let mut listening = self.listening.clone();
        let reached = listening.wait_for(|now| *now == wanted).await;
        reached.expect("the proxy lives as long as its owner");
    }
}

/// A socket at this address, beside others of ours: who does not listen keeps the port from strangers.
fn bound(address: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_reuseport(true).expect("an option of every socket");
    socket.bind(address).expect("the port is free, or ours");
    socket
}

fn listener(address: SocketAddr) -> TcpListener {
    bound(address).listen(1024).expect("nobody else listens")
}

async fn listen(
    port: TcpSocket,
    mut listener: TcpListener,
    target: String,
    weather: Arc<watch::Sender<Weather>>,
    listens: watch::Sender<bool>,
    number: Arc<AtomicUsize>,
) {
    let address = port.local_addr().expect("a bound socket has an address");
    let mut connections = JoinSet::new();
    let mut changes = weather.subscribe();
    loop {
        // Only the fact is kept: what `wait_for` gives would lock the weather.
        let refused = async { changes.wait_for(|now| now.mode == Mode::Refuse).await.is_ok() };
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { continue };
                number.fetch_add(1, Ordering::SeqCst);
                let era = weather.borrow().era;
                connections.spawn(connection(client, target.clone(), weather.subscribe(), era));
            }
            _ = refused => {
                drop(listener);
                listens.send_replace(false);
                if weather.subscribe().wait_for(|now| now.mode != Mode::Refuse).await.is_err() {
                    return;
                }
                listener = self::listener(address);
                listens.send_replace(true);
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn connection(client: TcpStream, target: String, weather: watch::Receiver<Weather>, era: u64) {
    let Ok(server) = TcpStream::connect(target).await else {
        return;
    };
    client.set_nodelay(true).ok();
    server.set_nodelay(true).ok();
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = server.into_split();
    let mut over = weather.clone();
    tokio::select! {
        () = pump(client_read, server_write, weather.clone(), era, &[Mode::Open, Mode::Mute]) => {}
        () = pump(server_read, client_write, weather, era, &[Mode::Open]) => {}
        _ = over.wait_for(|now| now.era != era) => {}
    }
}

/// Copies while the weather allows; waits while it does not. What was cut passes nothing on, however soon all is well again.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut weather: watch::Receiver<Weather>,
    era: u64,
    passes: &[Mode],
) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let Ok(read) = from.read(&mut buffer).await else {
            return;
        };
        let allowed = weather.wait_for(|now| now.era != era || passes.contains(&now.mode));
        if !allowed.await.is_ok_and(|now| now.era == era) {
            return;
        }
        if read == 0 || to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
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

    async fn say(stream: &mut TcpStream) -> std::io::Result<[u8; 1]> {
        let mut answer = [0];
        stream.write_all(b"x").await?;
        stream.read_exact(&mut answer).await?;
        Ok(answer)
    }

    #[tokio::test]
    async fn what_is_cut_is_closed_and_can_be_made_again() {
        let (_server, address) = echo().await;
        let proxy = Proxy::start(address.to_string()).await;
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(say(&mut stream).await.unwrap(), *b"x");
        proxy.cut();
        assert!(say(&mut stream).await.is_err());
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(say(&mut stream).await.unwrap(), *b"x");
        proxy.refuse().await;
        assert!(TcpStream::connect(proxy.address()).await.is_err());
        let stranger = TcpListener::bind(proxy.address()).await;
        assert!(stranger.is_err(), "the port stays the proxy's");
        proxy.restore().await;
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(say(&mut stream).await.unwrap(), *b"x");
    }

    #[tokio::test]
    async fn a_withheld_answer_arrives_when_all_is_well_again() {
        let (_server, address) = echo().await;
        let proxy = Proxy::start(address.to_string()).await;
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(say(&mut stream).await.unwrap(), *b"x");
        proxy.mute();
        let answer = say(&mut stream);
        tokio::pin!(answer);
        assert!((&mut answer).now_or_never().is_none());
        proxy.restore().await;
        assert_eq!(answer.await.unwrap(), *b"x");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_was_cut_passes_nothing_on_however_soon_all_is_well_again() {
        let (_server, address) = echo().await;
        let proxy = Proxy::start(address.to_string()).await;
        for _ in 0..200 {
            let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
            assert_eq!(say(&mut stream).await.unwrap(), *b"x");
            proxy.black_hole();
            stream.write_all(&[b'y'; 1000]).await.unwrap();
            proxy.cut();
            proxy.restore().await;
            assert!(stream.read_exact(&mut [0]).await.is_err());
        }
    }
}
