//! Sets TCP_NODELAY on the connections to the database.
//!
//! sqlx 0.9.0 leaves Nagle's algorithm on (its issue 4335, fixed after that release). Over TLS a statement of more than
//! 16 KiB is several writes. The second one waits up to 40 ms for the server to acknowledge the first. A drain over TLS took
//! 1.4 times as long.
//!
//! sqlx does not expose the socket, so it is found by its port among the open sockets of the process. Other connections to
//! that port are not harmed. Remove this file with the release of sqlx that sets the option.

/// Sets it on every connection to this port.
#[cfg(unix)]
pub(super) fn send_at_once(port: u16) {
    use std::os::fd::RawFd;

    use nix::sys::socket::sockopt::TcpNoDelay;
    use nix::sys::socket::{SockaddrStorage, getpeername, setsockopt};

    let Ok(open) = std::fs::read_dir("/dev/fd") else {
        return;
    };
    let numbers = open.filter_map(|file| file.ok()?.file_name().to_str()?.parse::<RawFd>().ok());
    for number in numbers {
        let Ok(peer) = getpeername::<SockaddrStorage>(number) else {
            continue; // not a socket, or closed already
        };
        let there = (peer.as_sockaddr_in().map(|v4| v4.port()))
            .or_else(|| peer.as_sockaddr_in6().map(|v6| v6.port()));
        if there == Some(port) {
            setsockopt(number, TcpNoDelay, &true).ok(); // a failure only costs time
        }
    }
}

#[cfg(not(unix))]
pub(super) fn send_at_once(_port: u16) {}

#[cfg(all(test, unix))]
mod tests {
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn connections_to_the_port_send_at_once_and_others_are_left_alone() {
        let v4 = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        // Only sockets with the same port.
        let port = v4.local_addr().expect("bound").port();
        let v6 = TcpListener::bind(("::1", port)).await;
        let other = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        for listener in v6.iter().chain([&v4]) {
            let there = listener.local_addr().expect("bound");
            let stream = TcpStream::connect(there).await.expect("listens");
            let elsewhere = TcpStream::connect(other.local_addr().expect("bound"));
            let elsewhere = elsewhere.await.expect("listens");
            assert!(!stream.nodelay().expect("a socket"));
            send_at_once(there.port());
            assert!(stream.nodelay().expect("a socket"));
            assert!(!elsewhere.nodelay().expect("a socket"));
        }
    }
}
