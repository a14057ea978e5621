//! A door in front of RabbitMQ that makes it slow, or that slams when it sees something it dislikes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What the door does.
#[derive(Debug, Clone, Default)]
pub(super) struct Manners {
    /// Every answer of the broker takes so long; answers do not overtake each other.
    pub(super) delay: Duration,
    /// A connection that carries these bytes to the broker is closed at once, without passing them on.
    pub(super) slams_at: Option<Vec<u8>>,
}

/// A door. Closed when it is dropped.
pub(super) struct Door {
    address: SocketAddr,
    slammed: Arc<AtomicUsize>,
    withholds: watch::Sender<bool>,
    _doorkeeper: JoinSet<()>,
}

impl Door {
    /// Opens a door in front of the broker at this URL.
    pub(super) async fn open(amqp: &str, manners: Manners) -> Self {
        let broker = authority(amqp).to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let slammed = Arc::new(AtomicUsize::new(0));
        let mut doorkeeper = JoinSet::new();
        let count = Arc::clone(&slammed);
        let (withholds, withheld) = watch::channel(false);
        doorkeeper.spawn(async move {
            let mut guests = JoinSet::new();
            while let Ok((guest, _)) = listener.accept().await {
                let (manners, count) = (manners.clone(), Arc::clone(&count));
                guests.spawn(serve(guest, broker.clone(), manners, withheld.clone(), count));
            }
        });
        Self {
            address,
            slammed,
            withholds,
            _doorkeeper: doorkeeper,
        }
    }

    /// The same URL, through the door.
    pub(super) fn url(&self, amqp: &str) -> String {
        amqp.replace(authority(amqp), &self.address.to_string())
    }

    /// Are the broker's answers kept back from now on? Those that were come when it ends.
    pub(super) fn withholds(&self, answers: bool) {
        self.withholds.send_replace(answers);
    }

    /// How often it has slammed.
    pub(super) fn slammed(&self) -> usize {
        self.slammed.load(Ordering::Relaxed)
    }
}

/// `host:port` of a URL.
fn authority(url: &str) -> &str {
    let (_, rest) = url.rsplit_once('@').expect("the URL names a user");
    rest.split('/').next().expect("the URL names a host")
}

async fn serve(
    guest: TcpStream,
    broker: String,
    manners: Manners,
    withheld: watch::Receiver<bool>,
    slammed: Arc<AtomicUsize>,
) {
    let Ok(broker) = TcpStream::connect(broker).await else {
        return;
    };
    let (guest_reads, guest_writes) = guest.into_split();
    let (broker_reads, broker_writes) = broker.into_split();
    // Whichever direction ends, both are dropped: that closes the connection.
    tokio::select! {
        was_slammed = carry_in(guest_reads, broker_writes, manners.slams_at) => {
            slammed.fetch_add(usize::from(was_slammed), Ordering::Relaxed);
        }
        () = carry_out(broker_reads, guest_writes, manners.delay, withheld) => {}
    }
}

/// Carries what the guest says. True if it said what the door dislikes.
async fn carry_in(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, dislikes: Option<Vec<u8>>) -> bool {
    let mut chunk = vec![0; 64 * 1024];
    let mut seen = Vec::new();
    while let Ok(length @ 1..) = from.read(&mut chunk).await {
        if let Some(dislikes) = &dislikes {
            seen.extend_from_slice(&chunk[..length]);
            if seen
                .windows(dislikes.len())
                .any(|window| window == dislikes.as_slice())
            {
                return true;
            }
            // The next chunk may bring the rest of it.
            let keep = seen.len().min(dislikes.len() - 1);
            seen.drain(..seen.len() - keep);
        }
        if to.write_all(&chunk[..length]).await.is_err() {
            return false;
        }
    }
    false
}

async fn carry_out(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    delay: Duration,
    mut withheld: watch::Receiver<bool>,
) {
    let mut chunk = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut chunk).await {
        tokio::time::sleep(delay).await;
        let is_open = withheld.wait_for(|withheld| !withheld).await.is_ok();
        if !is_open || to.write_all(&chunk[..length]).await.is_err() {
            return;
        }
    }
}
