//! What every request of the API passes: the name in `Host`, the size of its body, and its time.
//!
//! A web page can make its own name resolve to 127.0.0.1 and then read what a browser on this machine may read. Such a request
//! has the page's name in `Host`. So a name must be known; an address cannot be made to resolve elsewhere.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::header::{CONTENT_LENGTH, HOST};
use axum::http::uri::Authority;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::problem::{Code, Problem};

/// How long an answer may take, the body of the request included.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The largest body of a request.
pub(super) const MAX_BODY: usize = 1024 * 1024;

/// The names of the API.
pub(super) type Hosts = Arc<[String]>;

pub(super) async fn check(State(hosts): State<Hosts>, request: Request, next: Next) -> Response {
    if !is_known_host(&request, &hosts) {
        return Problem::from(Code::UnknownHost).into_response();
    }
    bounded(request, next).await
}

/// The same without the check of the name.
pub(super) async fn bounded(request: Request, next: Next) -> Response {
    if is_too_large(&request) {
        return Problem::from(Code::TooLarge).into_response();
    }
    match tokio::time::timeout(TIMEOUT, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Problem::from(Code::Timeout).into_response(),
    }
}

fn is_too_large(request: &Request) -> bool {
    let length = request.headers().get(CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    length.is_some_and(|length| length > MAX_BODY)
}

fn is_known_host(request: &Request, hosts: &[String]) -> bool {
    let in_uri = request.uri().authority().map(Authority::host);
    let mut headers = request.headers().get_all(HOST).iter().peekable();
    let is_named = in_uri.is_some() || headers.peek().is_some();
    is_named
        && in_uri.is_none_or(|host| is_known(host, hosts))
        && headers.all(|header| {
            let authority = header
                .to_str()
                .ok()
                .and_then(|text| text.parse::<Authority>().ok());
            authority.is_some_and(|authority| is_known(authority.host(), hosts))
        })
}

fn is_known(host: &str, hosts: &[String]) -> bool {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    bare.unwrap_or(host).parse::<IpAddr>().is_ok()
        || host.eq_ignore_ascii_case("localhost")
        || hosts.iter().any(|known| known.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn request(uri: &str, hosts: &[&str]) -> Request {
        let builder = hosts.iter().fold(Request::builder().uri(uri), |builder, host| {
            builder.header(HOST, *host)
        });
        builder.body(Body::empty()).unwrap()
    }

    #[test]
    fn only_addresses_and_known_names_are_served() {
        let hosts = ["pillarbox.example.com".to_owned()];
        for host in [
            "127.0.0.1:7700",
            "10.1.2.3",
            "[::1]:7700",
            "localhost",
            "LOCALHOST:7700",
            "Pillarbox.example.com:80",
        ] {
            assert!(is_known_host(&request("/", &[host]), &hosts), "{host}");
        }
        for host in [
            "evil.example.com",
            "127.0.0.1.evil.example.com",
            "localhost.evil.example.com",
            "x.pillarbox.example.com",
            "",
            "a b",
        ] {
            assert!(!is_known_host(&request("/", &[host]), &hosts), "{host}");
        }
        assert!(!is_known_host(&request("/", &[]), &hosts));
        assert!(!is_known_host(
            &request("/", &["localhost", "evil.example.com"]),
            &hosts
        ));
        assert!(!is_known_host(
            &request("http://evil.example.com/", &["localhost"]),
            &hosts
        ));
    }
}
