//! A broker that accepts connections and then does not answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pillarbox_consume::rabbitmq::Config;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::ledger::Ledger;
use crate::running::Running;
use pillarbox_testkit::wait::until;

/// `connection.start`: version 0-9, no properties, `PLAIN`, `en_US`.
const START: &[u8] = b"\0\x0a\0\x0a\x00\x09\0\0\0\0\0\0\0\x05PLAIN\0\0\0\x05en_US";
/// `connection.tune`: 2,047 channels, frames of 128 KiB, no heartbeat.
const TUNE: &[u8] = b"\0\x0a\0\x1e\x07\xff\0\x02\0\0\0\0";
/// `connection.open-ok`.
const OPEN_OK: &[u8] = b"\0\x0a\0\x29\0";

/// Sends a method on channel 0.
async fn send(stream: &mut TcpStream, method: &[u8]) -> std::io::Result<()> {
    let length = u32::try_from(method.len()).unwrap().to_be_bytes();
    let frame = [&[1, 0, 0], &length[..], method, &[0xce]].concat();
    stream.write_all(&frame).await
}

async fn receive(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut head = [0; 7];
    stream.read_exact(&mut head).await?;
    let length = u32::from_be_bytes([head[3], head[4], head[5], head[6]]);
    let mut rest = vec![0; usize::try_from(length).unwrap() + 1];
    stream.read_exact(&mut rest).await?;
    Ok(())
}

async fn accept(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut protocol = [0; 8];
    stream.read_exact(&mut protocol).await?;
    send(stream, START).await?;
    receive(stream).await?; // start-ok
    send(stream, TUNE).await?;
    receive(stream).await?; // tune-ok
    receive(stream).await?; // open
    send(stream, OPEN_OK).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_accepts_a_connection_and_goes_silent_is_reconnected() {
    let ledger = Ledger::create().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let count = connections.clone();
    let mut broker = JoinSet::new();
    broker.spawn(async move {
        let mut kept = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            if accept(&mut stream).await.is_ok() {
                count.fetch_add(1, Ordering::SeqCst);
            }
            kept.push(stream);
        }
    });
    let config = Config::new(format!("amqp://guest:guest@{address}/%2f"), "letters")
        .connect_timeout(Duration::from_secs(1))
        .heartbeat(Duration::from_secs(3600));
    let running = Running::start(ledger.consumer(), config);
    until("the consumer connects again", || async {
        connections.load(Ordering::SeqCst) >= 2
    })
    .await;
    running.stop().await;
    broker.shutdown().await;
    ledger.drop().await;
}
