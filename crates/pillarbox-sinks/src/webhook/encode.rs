//! An event as an HTTP request.

use std::borrow::Cow;
use std::cell::Cell;

use bytes::Bytes;
use percent_encoding::utf8_percent_encode;
use pillarbox::internal::MAX_NAME;
use pillarbox::webhook::Keys;
use pillarbox::{Delivery, Outcome};
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use time::OffsetDateTime;

use crate::headers::{Added, taken};
use crate::message::Writer;
use crate::percent;
use crate::registry::ConfigError;
use crate::template::{Form, Joint, Template};

/// The URL of requests. It may have a token, so it is never printed.
pub(super) struct Target {
    template: Template,
    /// What alone divides two values, so that neither can have it.
    dividers: String,
    /// The URL itself, or that of the host if the rest depends on the event.
    probe: Url,
}

impl Target {
    /// Reads a URL, which may be a template after its host.
    pub(super) fn parse(text: &str) -> Result<Self, ConfigError> {
        let wrong = |problem: String| ConfigError::at("url", problem);
        let template = Template::parse(text).map_err(|error| wrong(format!("cannot be used: {error}")))?;
        let start = template.literal_start().to_owned();
        let mut probe = Url::parse(&start).map_err(|error| {
            wrong(format!(
                "is not a URL ({error}); write for example https://example.com/hook"
            ))
        })?;
        if !matches!(probe.scheme(), "http" | "https") {
            return Err(wrong("must begin with https:// or http://".to_owned()));
        }
        if !template.is_constant() {
            let authority = start.split_once("://").map_or("", |(_, rest)| rest);
            if !authority.contains(['/', '?', '#']) {
                return Err(wrong(
                    "must name its host; only what follows may depend on the event".to_owned(),
                ));
            }
            probe.set_path("/");
            probe.set_query(None);
        }
        let dividers = template.dividers(joint).map_err(|_| {
            wrong("has two values that nothing divides, so that `a` and `bc` would go where `ab` and `c` go; write `/` between them".to_owned())
        })?;
        Ok(Self {
            template,
            dividers,
            probe,
        })
    }

    /// Is the URL the same for every event?
    pub(super) fn is_constant(&self) -> bool {
        self.template.is_constant()
    }

    /// The part of the destination that an event goes to.
    pub(super) fn part(&self, delivery: &Delivery, destination: &str) -> Option<String> {
        self.template.part(delivery, destination)
    }

    /// The URL as it was written.
    pub(super) fn source(&self) -> &str {
        self.template.source()
    }

    /// The URL of a probe.
    pub(super) fn probe(&self) -> &Url {
        &self.probe
    }

    /// Where a probe goes. The root of the host gets no login.
    pub(super) fn probe_url(&self) -> Url {
        let mut url = self.probe.clone();
        if !self.is_constant() {
            // It fails only for a URL without a host, which `parse` refuses.
            let stripped = url.set_username("").and_then(|()| url.set_password(None));
            debug_assert!(stripped.is_ok(), "the URL has a host");
        }
        url
    }

    /// `host:port`, without what may be secret.
    pub(super) fn host(&self) -> String {
        let port = self.probe.port_or_known_default().unwrap_or_default();
        format!("{}:{port}", self.probe.host_str().unwrap_or_default())
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.probe.scheme() == "https"
    }

    fn url(&self, delivery: &Delivery, destination: &str) -> Result<Url, Outcome> {
        if self.template.is_constant() {
            return Ok(self.probe.clone());
        }
        let problem = Cell::new(None);
        let encode = |value: &str, form: Form, out: &mut String| {
            if value.is_empty() {
                problem.set(Some("is empty"));
            } else if form == Form::Text && value.contains(|c| self.dividers.contains(c)) {
                problem.set(Some(
                    "has what divides it from another value (write `/` between them)",
                ));
            } else if value.len() > MAX_NAME {
                problem.set(Some("is longer than 1024 bytes"));
            }
            out.extend(utf8_percent_encode(value, percent::URI));
        };
        let text = self
            .template
            .render_with(delivery, destination, encode)
            .map_err(|missing| {
                Outcome::reject(format!(
                    "the event has no `{}`, which the URL needs",
                    missing.field
                ))
            })?;
        if let Some(problem) = problem.get() {
            return Err(Outcome::reject(format!(
                "a value of the event that the URL needs {problem}"
            )));
        }
        // A URL parser resolves such a segment to the parent: the event would choose the path.
        let path = text.split(['?', '#']).next().unwrap_or_default();
        if path.split('/').any(|segment| matches!(segment, "." | "..")) {
            return Err(Outcome::reject(
                "a value of the event makes a `.` or `..` in the URL's path",
            ));
        }
        Url::parse(&text)
            .map_err(|error| Outcome::reject(format!("the URL for the event is invalid: {error}")))
    }
}

/// A value is percent-encoded, all but what is unreserved in a URL. What is encoded already divides nothing.
fn joint(c: char) -> Joint {
    match c {
        '-' | '.' | '_' | '~' => Joint::Common,
        c if c.is_alphanumeric() || c == '%' => Joint::Part,
        _ => Joint::Foreign,
    }
}

/// The URL, the headers and the body.
pub(super) fn request(
    delivery: &Delivery,
    target: &Target,
    writer: &Writer,
    authorization: Option<&HeaderValue>,
) -> Result<(Url, HeaderMap, Bytes), Outcome> {
    let url = target.url(delivery, writer.destination())?;
    let parts = writer.write(delivery)?;
    let mut map = HeaderMap::with_capacity(24);
    put(&mut map, CONTENT_TYPE, parts.content_type)?;
    if let Some(encoding) = parts.content_encoding {
        put(&mut map, CONTENT_ENCODING, encoding)?;
    }
    let id = HeaderName::from_static("webhook-id");
    put(&mut map, id, &delivery.event.id.to_string())?;
    for (name, value) in parts.headers {
        put(&mut map, header_name(name)?, &value)?;
    }
    let is_added = |name: &HeaderName| writer.added().has(name.as_str());
    for (_, value) in map.iter_mut().filter(|(name, _)| is_added(name)) {
        value.set_sensitive(true);
    }
    if let Some(authorization) = authorization {
        map.insert(AUTHORIZATION, authorization.clone());
    }
    Ok((url, map, parts.body))
}

/// Adds the time of the attempt and the signatures.
pub(super) fn sign(
    headers: &mut HeaderMap,
    keys: &Keys,
    delivery: &Delivery,
    body: &[u8],
    now: OffsetDateTime,
) {
    let signature = keys.sign(&delivery.event.id.to_string(), now, body);
    let signature = HeaderValue::try_from(signature).expect("base64 is made of what HTTP allows");
    headers.insert(
        HeaderName::from_static("webhook-timestamp"),
        now.unix_timestamp().into(),
    );
    headers.insert(HeaderName::from_static("webhook-signature"), signature);
}

/// The headers of a request without an event.
pub(super) fn probe_headers(added: &Added, authorization: Option<&HeaderValue>) -> Result<HeaderMap, String> {
    let constant = added.constant().map(|(name, value)| header(name, &value));
    let mut map: HeaderMap = constant.collect::<Result<_, _>>()?;
    if let Some(authorization) = authorization {
        map.insert(AUTHORIZATION, authorization.clone());
    }
    Ok(map)
}

/// Why the configuration cannot add a header.
pub(super) fn legal_header(name: &str, value: &str) -> Result<(), String> {
    header(name, value)?;
    if taken::by_request(name) {
        return Err("it is set by the connection, the payload or Pillarbox".to_owned());
    }
    Ok(())
}

fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), &'static str> {
    let name = HeaderName::try_from(name).map_err(|_| "it is not a valid HTTP header name")?;
    let value = secret(value).ok_or("its value holds a character that HTTP forbids")?;
    Ok((name, value))
}

/// A value that no log of the HTTP client shows.
pub(super) fn secret(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_bytes(text.as_bytes()).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn header_name(name: &str) -> Result<HeaderName, Outcome> {
    HeaderName::try_from(name)
        .map_err(|_| Outcome::reject(format!("`{}` is not a valid HTTP header name", printable(name))))
}

fn put(map: &mut HeaderMap, name: HeaderName, value: &str) -> Result<(), Outcome> {
    let value = HeaderValue::from_bytes(value.as_bytes())
        .map_err(|_| Outcome::reject(format!("`{name}` has a value with a character that HTTP forbids")))?;
    map.try_insert(name, value)
        .map_err(|_| Outcome::reject("the event has more headers than HTTP allows"))?;
    Ok(())
}

fn printable(name: &str) -> Cow<'_, str> {
    if name.chars().any(char::is_control) {
        Cow::Owned(name.escape_debug().to_string())
    } else {
        Cow::Borrowed(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::HTTP;
    use crate::sample::{added, delivery};
    use pillarbox::Event;

    fn encode(url: &str, event: Event) -> Result<(Url, HeaderMap), Outcome> {
        let target = Target::parse(url).unwrap();
        let writer = Writer::new("partner", &HTTP, Added::default());
        request(&delivery(event), &target, &writer, None).map(|(url, headers, _)| (url, headers))
    }

    fn event() -> Event {
        Event::new("shop", "orders")
    }

    #[test]
    fn metadata_travels_in_headers() {
        let event = event().event_type("OrderCreated").header("X-Trace", "é");
        let id = event.id.to_string();
        let (_, headers) = encode("https://example.com/", event).unwrap();
        assert_eq!(headers["content-type"], "application/json");
        assert_eq!(headers["webhook-id"], id.as_str());
        assert_eq!(headers["pillarbox-id"], id.as_str());
        assert_eq!(headers["pillarbox-type"], "OrderCreated");
        assert_eq!(headers["x-trace"].as_bytes(), "é".as_bytes());
    }

    #[test]
    fn the_event_cannot_set_what_belongs_to_the_connection_the_sender_or_us() {
        let names = [
            "Host",
            "Content-Length",
            "Transfer-Encoding",
            "Connection",
            "TE",
            "Upgrade",
            "Proxy-Authorization",
            "webhook-signature",
            "webhook_id",
            "pillarbox_tenant",
            "ce-id",
            "Authorization",
            "X-Api-Key",
            "x_auth_token",
            "Cookie",
            "Forwarded",
            "X-Forwarded-For",
            "x_forwarded_host",
            "X-Forwarded-Client-Cert",
            "X-Real-IP",
            "Via",
            "Origin",
            "Sec-Fetch-Site",
            "X-HTTP-Method-Override",
            "x_http_method",
            "X-Method-Override",
            "X-Original-URL",
            "X-Rewrite-URL",
            "Remote-User",
            "X-Remote-User",
            "X-SSL-Client-Verify",
            "X-CSRF-Token",
        ];
        let event = names
            .iter()
            .fold(event(), |event, name| event.header(*name, "forged"));
        let (_, headers) = encode("https://example.com/", event.header("x-own", "kept")).unwrap();
        assert!(headers.values().all(|value| value != "forged"), "{headers:?}");
        assert_eq!(headers["x-own"], "kept");
    }

    #[test]
    fn the_configuration_can_set_what_an_event_cannot() {
        let headers = encode_with(
            &[("cookie", "a=b"), ("x-forwarded-for", "{header.ip}")],
            event().header("ip", "::1"),
        );
        let headers = headers.unwrap();
        assert_eq!(headers["cookie"], "a=b");
        assert_eq!(headers["x-forwarded-for"], "::1");
    }

    fn encode_with(headers: &[(&str, &str)], event: Event) -> Result<HeaderMap, Outcome> {
        let target = Target::parse("https://example.com/").unwrap();
        let writer = Writer::new("partner", &HTTP, added(headers, legal_header).unwrap());
        let bearer = HeaderValue::from_static("Bearer ours");
        request(&delivery(event), &target, &writer, Some(&bearer)).map(|(_, headers, _)| headers)
    }

    #[test]
    fn configured_headers_are_made_from_the_event_and_win() {
        let event = event()
            .header("X-Topic", "theirs")
            .header("Authorization", "theirs");
        let headers = encode_with(&[("x-topic", "{topic}!"), ("authorization", "weaker")], event).unwrap();
        for (name, value) in [("x-topic", "orders!"), ("authorization", "Bearer ours")] {
            assert_eq!(headers.get_all(name).iter().collect::<Vec<_>>(), [value]);
        }
        assert!(headers["x-topic"].is_sensitive());
        assert!(!headers["pillarbox-topic"].is_sensitive());
    }

    #[test]
    fn an_event_that_makes_no_configured_header_is_rejected() {
        assert_eq!(
            encode_with(&[("x-severity", "token {severity}")], event()),
            Err(Outcome::reject(
                "the event has no `severity`, which the header `x-severity` needs"
            ))
        );
        let injected = event().header("x", "a\r\nevil: b");
        let outcome = encode_with(&[("x", "{header.x}")], injected).unwrap_err();
        assert_eq!(outcome.name(), "reject");
    }

    #[test]
    fn a_configured_header_that_is_not_its_own_is_refused() {
        for name in [
            "Host",
            "content-type",
            "Content_Type",
            "webhook-id",
            "Proxy-X",
            "Pillarbox-Id",
            "ce-id",
            "x y",
            "",
        ] {
            let error = added(&[(name, "x")], legal_header).err().unwrap();
            assert_eq!(error.key, "headers", "{name}");
        }
    }

    #[test]
    fn a_check_carries_what_needs_no_event() {
        let added = added(&[("x-topic", "{topic}"), ("x-shop", "berlin")], legal_header).unwrap();
        let bearer = HeaderValue::from_static("Bearer ours");
        let headers = probe_headers(&added, Some(&bearer)).unwrap();
        assert_eq!(headers.len(), 2);
        assert_eq!(headers["x-shop"], "berlin");
        assert_eq!(headers["authorization"], "Bearer ours");
    }

    #[test]
    fn what_http_forbids_in_a_header_is_rejected() {
        for bad in [
            event().header("x", "a\r\nevil: b"),
            event().header("x\r\n", "a"),
            event().header("é", "a"),
            event().ordering_key("a\nb"),
            event().bytes(&b"x"[..], "a\nb"),
        ] {
            assert_eq!(encode("https://example.com/", bad).unwrap_err().name(), "reject");
        }
    }

    #[test]
    fn more_headers_than_http_allows_are_rejected() {
        let mut many = event();
        for n in 0..40_000 {
            many = many.header(format!("h{n}"), "");
        }
        assert_eq!(encode("https://example.com/", many).unwrap_err().name(), "reject");
    }

    #[test]
    fn values_are_encoded_into_the_path() {
        let event = event().aggregate("order", "a/b?c#d%é .");
        let (url, _) = encode("https://example.com/hooks/{aggregate_id}?t={topic}", event).unwrap();
        assert_eq!(
            url.as_str(),
            "https://example.com/hooks/a%2Fb%3Fc%23d%25%C3%A9%20.?t=orders"
        );
    }

    #[test]
    fn two_values_share_no_character_that_divides_them() {
        let go = |path: &str, namespace: &str, topic: &str| {
            let encoded = encode(
                &format!("https://example.com/{path}"),
                Event::new(namespace, topic),
            );
            encoded.map(|(url, _)| url.path().to_owned())
        };
        for (namespace, topic) in [("a-b", "c"), ("a", "b-c")] {
            let rejected = go("{namespace}-{topic}", namespace, topic);
            assert_eq!(rejected.unwrap_err().name(), "reject");
            let apart = go("{namespace}/-{topic}", namespace, topic).unwrap();
            assert_eq!(apart, format!("/{namespace}/-{topic}"));
        }
        assert_eq!(go("{namespace}-{topic}", "a", "b.c").unwrap(), "/a-b.c");
        for path in ["{namespace}{topic}", "{namespace}%2F{topic}"] {
            let refused = Target::parse(&format!("https://example.com/{path}"))
                .err()
                .unwrap();
            assert_eq!(refused.key, "url");
        }
    }

    #[test]
    fn a_value_cannot_climb_out_of_its_path() {
        for url in [
            "https://example.com/a/{aggregate_id}",
            "https://example.com/a/.{aggregate_id}/b",
        ] {
            let event = event().aggregate(
                "order",
                if url.contains('.') && url.ends_with('b') {
                    "."
                } else {
                    ".."
                },
            );
            assert_eq!(encode(url, event).unwrap_err().name(), "reject", "{url}");
        }
    }

    #[test]
    fn a_value_that_is_no_segment_is_rejected() {
        for value in ["", &"x".repeat(1025)] {
            let outcome = encode("https://example.com/a/{header.x}/b", event().header("x", value));
            assert_eq!(outcome.unwrap_err().name(), "reject");
        }
    }

    #[test]
    fn a_missing_value_is_rejected_without_showing_the_url() {
        let outcome = encode("https://example.com/token/{severity}", event()).unwrap_err();
        assert_eq!(
            outcome,
            Outcome::reject("the event has no `severity`, which the URL needs")
        );
    }

    #[test]
    fn a_url_must_have_a_scheme_and_a_host_of_its_own() {
        for url in [
            "",
            "example.com",
            "ftp://example.com/",
            "https://",
            "https://{topic}/",
            "https://a.{topic}/",
            "{topic}",
        ] {
            assert_eq!(
                Target::parse(url).err().map(|error| error.key),
                Some("url"),
                "{url}"
            );
        }
    }

    #[test]
    fn the_probe_of_a_template_is_its_host() {
        let target = Target::parse("https://example.com:8443/token/{topic}").unwrap();
        assert_eq!(target.probe().as_str(), "https://example.com:8443/");
        let target = Target::parse("https://example.com/token").unwrap();
        assert_eq!(target.probe().as_str(), "https://example.com/token");
    }

    #[test]
    fn a_probe_of_the_root_has_no_login() {
        let probe = |url: &str| Target::parse(url).unwrap().probe_url().to_string();
        assert_eq!(
            probe("https://u:hunter2@example.com/{topic}"),
            "https://example.com/"
        );
        assert_eq!(
            probe("https://hunter2@example.com/{topic}"),
            "https://example.com/"
        );
        assert_eq!(probe("https://u:p@example.com/a"), "https://u:p@example.com/a");
    }
}
