//! Which hosts are this machine. What travels to any other may be read on the way, unless the connection is encrypted.

use std::net::IpAddr;

/// Is the host this machine: `localhost`, a loopback address or the path of a socket? The host has no port.
pub fn is_local(host: &str) -> bool {
    let name = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let name = name.unwrap_or(host);
    if let Ok(address) = name.parse::<IpAddr>() {
        return address.to_canonical().is_loopback();
    }
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name.starts_with('/') || name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_and_sockets_are_this_machine() {
        for host in [
            "localhost",
            "LocalHost.",
            "a.localhost",
            "127.0.0.1",
            "127.8.9.10",
            "::1",
            "[::1]",
            "::ffff:127.0.0.1",
            "/var/run/postgresql",
        ] {
            assert!(is_local(host), "{host}");
        }
        for host in [
            "",
            "mq",
            "10.0.0.1",
            "0.0.0.0",
            "::",
            "[fe80::1]",
            "localhost.example.com",
            "notlocalhost",
            "127.0.0.1.example.com",
        ] {
            assert!(!is_local(host), "{host}");
        }
    }
}
