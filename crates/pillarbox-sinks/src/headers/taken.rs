//! Names that a protocol gives a meaning of its own. An event cannot set them.

use super::{begins_with, is_same};

/// Headers of the connection, of the payload and of Pillarbox.
const OF_THE_REQUEST: [&str; 12] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];

/// Headers by which a receiver, or a proxy before it, decides who sends a request, from where, and what it asks for.
const OF_THE_SENDER: [&str; 22] = [
    "authentication-info",
    "authorization",
    "cf-connecting-ip",
    "cookie",
    "cookie2",
    "fastly-client-ip",
    "forwarded",
    "max-forwards",
    "origin",
    "referer",
    "set-cookie",
    "true-client-ip",
    "via",
    "www-authenticate",
    "x-access-token",
    "x-api-key",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-host",
    "x-method-override",
    "x-real-ip",
    "x-rewrite-url",
];

/// The same, by their beginnings.
const OF_THE_SENDER_PREFIXES: [&str; 12] = [
    "remote-",
    "sec-",
    "ssl-",
    "x-auth-",
    "x-client-cert",
    "x-csrf-",
    "x-forwarded-",
    "x-http-method",
    "x-original-",
    "x-remote-",
    "x-ssl-",
    "x-xsrf-",
];

/// Describes the payload, in protocols that have no field for it.
pub(crate) fn by_payload(name: &str) -> bool {
    is_same(name, "content-type") || is_same(name, "content-encoding")
}

/// A field of every entry of a Redis stream.
pub(crate) fn by_entry(name: &str) -> bool {
    is_same(name, "payload") || by_payload(name)
}

/// Set by the HTTP client, the payload or Pillarbox. The configuration cannot set it either.
pub(crate) fn by_request(name: &str) -> bool {
    let is_listed = OF_THE_REQUEST.iter().any(|taken| is_same(name, taken));
    is_listed || begins_with(name, "webhook-") || begins_with(name, "proxy-")
}

/// Set by the configuration, or by proxies on the way.
pub(crate) fn by_request_or_sender(name: &str) -> bool {
    by_request(name)
        || OF_THE_SENDER.iter().any(|taken| is_same(name, taken))
        || OF_THE_SENDER_PREFIXES
            .iter()
            .any(|prefix| begins_with(name, prefix))
}

/// AMQP has properties for all of it.
pub(crate) fn by_nothing(_: &str) -> bool {
    false
}
