//! Processor time of a server on this machine, found by the port on which it listens.

use std::collections::HashSet;
use std::fs;

use crate::cost;

/// The state `LISTEN` in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// The processor time of the server on this port so far, in microseconds; none if it runs on another machine.
pub(crate) fn of_port(port: u16) -> Option<f64> {
    cost::server(listener(port)?)
}

/// The first process that listens on this port.
fn listener(port: u16) -> Option<u32> {
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    let sockets: HashSet<String> = tables
        .iter()
        .flat_map(|table| table.lines())
        .filter_map(|line| socket(line, port))
        .collect();
    let listens = |process: &u32| {
        let files = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten();
        files
            .filter_map(|file| fs::read_link(file.ok()?.path()).ok())
            .any(|target| target.to_str().is_some_and(|target| sockets.contains(target)))
    };
    processes().filter(listens).min()
}

/// The socket of a line of `/proc/net/tcp`, if it listens on this port.
fn socket(line: &str, port: u16) -> Option<String> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (_, found) = fields.get(1)?.rsplit_once(':')?;
    let is_ours = u16::from_str_radix(found, 16) == Ok(port) && *fields.get(3)? == LISTEN;
    is_ours.then_some(format!("socket:[{}]", fields.get(9)?))
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_server_is_found_by_its_port() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        assert_eq!(listener(port), Some(std::process::id()));
        assert!(of_port(port).is_some());
        drop(server);
        assert_eq!(listener(port), None);
    }
}
