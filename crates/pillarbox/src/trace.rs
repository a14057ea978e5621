//! The trace that an event belongs to: W3C Trace Context, from producer to consumer.
//!
//! An event that is enqueued within a trace carries its `traceparent` (and `tracestate`) as headers, which are
//! stored with it and sent on by every sink. A header that the producer set itself is left alone.
//!
//! There are two ways to be within a trace. [`within`] says so for one future. With the cargo feature
//! `opentelemetry` the active span counts too; the application must use the same minor version of that crate as
//! this one does, because another version keeps its active span elsewhere.
//!
//! **If we die here** nothing was written: a trace is only looked up.

use std::future::Future;

use crate::event::Event;

/// The header that says which trace, and which step of it.
pub const TRACEPARENT: &str = "traceparent";
/// The header with what vendors add.
pub const TRACESTATE: &str = "tracestate";

/// How much of `tracestate` is kept: what the recommendation asks every program to pass on.
const MAX_TRACESTATE: usize = 512;
/// `00-` trace id `-` span id `-` flags.
const LEN: usize = 55;

tokio::task_local! {
    static CURRENT: TraceContext;
}

/// A step of a trace, as it travels in headers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TraceContext {
    traceparent: String,
    tracestate: Option<String>,
}

/// Why a `traceparent` is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTrace {
    /// It does not look like one.
    #[error(
        "`traceparent` is to be `00-`, 32 digits of a trace, `-`, 16 digits of a span, `-` and 2 of flags, in lower-case hex"
    )]
    Shape,
    /// The forbidden version.
    #[error("`traceparent` has the version ff, which is forbidden")]
    Version,
    /// An id of zeros, which means that there is none.
    #[error("`traceparent` has an id of zeros only")]
    Zero,
}

impl TraceContext {
    /// Reads both headers as the recommendation asks: a `tracestate` that is no such thing is dropped, one that
    /// is too long loses its last entries, and neither spoils the `traceparent`.
    ///
    /// # Errors
    /// When the `traceparent` is invalid.
    pub fn parse(traceparent: &str, tracestate: Option<&str>) -> Result<Self, InvalidTrace> {
        let traceparent = traceparent.trim();
        check(traceparent)?;
        Ok(Self {
            traceparent: traceparent.to_owned(),
            tracestate: tracestate.and_then(kept),
        })
    }

    /// Which trace, and which step of it.
    pub fn traceparent(&self) -> &str {
        &self.traceparent
    }

    /// What vendors added.
    pub fn tracestate(&self) -> Option<&str> {
        self.tracestate.as_deref()
    }
}

/// Runs a future within a trace: what it enqueues belongs to it. What it spawns does not; wrap that as well.
pub async fn within<F: Future>(context: TraceContext, future: F) -> F::Output {
    CURRENT.scope(context, future).await
}

/// The same for a function that blocks, on the thread that it runs on.
pub fn within_blocking<T>(context: TraceContext, function: impl FnOnce() -> T) -> T {
    CURRENT.sync_scope(context, function)
}

/// The trace that the caller is within, if any: what [`within`] says, else the active span.
pub fn current() -> Option<TraceContext> {
    CURRENT.try_with(Clone::clone).ok().or_else(active_span)
}

/// The event with the headers of the current trace, if there is one and the event names none itself.
pub fn capture(event: &Event) -> Option<Event> {
    let names_its_own = |name: &String| name.eq_ignore_ascii_case(TRACEPARENT);
    if event.headers.keys().any(names_its_own) {
        return None;
    }
    let context = current()?;
    let mut traced = event.clone();
    // A state belongs to its parent: one that came without is replaced or goes.
    (traced.headers).retain(|name, _| !name.eq_ignore_ascii_case(TRACESTATE));
    traced.headers.insert(TRACEPARENT.to_owned(), context.traceparent);
    if let Some(state) = context.tracestate {
        traced.headers.insert(TRACESTATE.to_owned(), state);
    }
    Some(traced)
}

#[cfg(feature = "opentelemetry")]
fn active_span() -> Option<TraceContext> {
    use opentelemetry::trace::TraceContextExt;

    let context = opentelemetry::Context::current();
    let span = context.span();
    let span = span.span_context();
    if !span.is_valid() {
        return None;
    }
    let traceparent = format!(
        "00-{}-{}-{:02x}",
        span.trace_id(),
        span.span_id(),
        span.trace_flags()
    );
    let tracestate = span.trace_state().header();
    TraceContext::parse(&traceparent, Some(&tracestate)).ok()
}

#[cfg(not(feature = "opentelemetry"))]
fn active_span() -> Option<TraceContext> {
    None
}

fn check(traceparent: &str) -> Result<(), InvalidTrace> {
    // A later version may say more after another dash; this one may not.
    let has_more = traceparent.len() > LEN;
    let may_have_more = !traceparent.starts_with("00") && traceparent.as_bytes().get(LEN) == Some(&b'-');
    if has_more && !may_have_more {
        return Err(InvalidTrace::Shape);
    }
    let known = traceparent.get(..LEN).ok_or(InvalidTrace::Shape)?;
    let parts: Vec<&str> = known.split('-').collect();
    let &[version, trace, span, flags] = parts.as_slice() else {
        return Err(InvalidTrace::Shape);
    };
    if !(is_hex(version, 2) && is_hex(trace, 32) && is_hex(span, 16) && is_hex(flags, 2)) {
        return Err(InvalidTrace::Shape);
    }
    if version == "ff" {
        return Err(InvalidTrace::Version);
    }
    if is_zero(trace) || is_zero(span) {
        return Err(InvalidTrace::Zero);
    }
    Ok(())
}

fn is_hex(text: &str, len: usize) -> bool {
    text.len() == len && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_zero(hex: &str) -> bool {
    hex.bytes().all(|b| b == b'0')
}

/// What is passed on of a `tracestate`: whole entries from its beginning, as far as there is room.
fn kept(tracestate: &str) -> Option<String> {
    let is_printable = |b: u8| matches!(b, b' '..=b'~' | b'\t');
    if !tracestate.bytes().all(is_printable) {
        return None;
    }
    let mut kept = tracestate.trim();
    while kept.len() > MAX_TRACESTATE {
        kept = kept.rsplit_once(',')?.0.trim_end();
    }
    (!kept.is_empty()).then(|| kept.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{prop_assert, prop_assert_eq, proptest};

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn parse(traceparent: &str) -> Result<TraceContext, InvalidTrace> {
        TraceContext::parse(traceparent, None)
    }

    fn context(state: Option<&str>) -> TraceContext {
        TraceContext::parse(PARENT, state).unwrap()
    }

    fn event() -> Event {
        Event::new("shop", "orders")
    }

    #[test]
    fn a_traceparent_is_kept_as_it_came() {
        assert_eq!(context(Some("a=1,b=2")).traceparent(), PARENT);
        assert_eq!(context(Some("a=1,b=2")).tracestate(), Some("a=1,b=2"));
        assert_eq!(context(None).tracestate(), None);
    }

    #[test]
    fn what_is_no_traceparent_is_refused() {
        for (text, why) in [
            ("", InvalidTrace::Shape),
            ("00", InvalidTrace::Shape),
            (&PARENT[..54], InvalidTrace::Shape),
            (&format!("{PARENT}0"), InvalidTrace::Shape),
            (&format!("{PARENT}-x"), InvalidTrace::Shape),
            (&PARENT.to_uppercase(), InvalidTrace::Shape),
            (&PARENT.replace("b7", "ß"), InvalidTrace::Shape),
            (&PARENT.replacen("00", "ff", 1), InvalidTrace::Version),
            (
                "00-00000000000000000000000000000000-b7ad6b7169203331-01",
                InvalidTrace::Zero,
            ),
            (
                "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
                InvalidTrace::Zero,
            ),
        ] {
            assert_eq!(parse(text), Err(why), "{text}");
        }
    }

    #[test]
    fn a_later_version_may_say_more() {
        let later = PARENT.replacen("00", "cc", 1);
        assert!(parse(&later).is_ok());
        assert!(parse(&format!("{later}-what-the-future-holds")).is_ok());
        assert_eq!(parse(&format!("{later}.")), Err(InvalidTrace::Shape));
    }

    #[test]
    fn a_state_that_is_none_is_dropped_and_a_long_one_loses_its_end() {
        assert_eq!(context(Some("a=\u{1}")).tracestate(), None);
        assert_eq!(context(Some("é=1")).tracestate(), None);
        assert_eq!(context(Some("  ")).tracestate(), None);
        assert_eq!(context(Some(&"x".repeat(513))).tracestate(), None);
        let long = format!("a={},b={},c=3", "1".repeat(300), "2".repeat(300));
        assert_eq!(context(Some(&long)).tracestate(), Some(&long[..302]));
    }

    #[tokio::test]
    async fn an_event_gets_the_trace_that_it_is_enqueued_within() {
        assert_eq!(capture(&event()), None);
        let traced = within(context(Some("a=1")), async { capture(&event().header("x", "y")) }).await;
        let headers = traced.unwrap().headers.clone();
        assert_eq!(headers[TRACEPARENT], PARENT);
        assert_eq!(headers[TRACESTATE], "a=1");
        assert_eq!(headers["x"], "y");
        assert_eq!(current(), None);
    }

    #[tokio::test]
    async fn the_inner_trace_counts() {
        let inner = parse(&PARENT.replace("b7ad", "b7ae")).unwrap();
        let seen = within(context(None), within(inner.clone(), async { current() })).await;
        assert_eq!(seen, Some(inner));
    }

    #[tokio::test]
    async fn a_trace_that_the_producer_names_is_left_alone() {
        let named = event().header("TraceParent", "mine");
        assert_eq!(within(context(None), async { capture(&named) }).await, None);
    }

    #[tokio::test]
    async fn a_state_without_its_parent_is_not_mixed_with_another() {
        let stray = event().header("TraceState", "stray=1");
        let traced = within(context(None), async { capture(&stray) }).await.unwrap();
        let names: Vec<&String> = traced.headers.keys().collect();
        assert_eq!(names, [TRACEPARENT]);
    }

    #[cfg(feature = "opentelemetry")]
    mod spans {
        use super::*;
        use opentelemetry::Context;
        use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};

        fn span(trace: u128) -> Context {
            let state = TraceState::from_key_value([("vendor", "1")]).unwrap();
            Context::new().with_remote_span_context(SpanContext::new(
                TraceId::from(trace),
                SpanId::from(0x00f0_67aa_0ba9_02b7_u64),
                TraceFlags::SAMPLED,
                true,
                state,
            ))
        }

        #[test]
        fn the_active_span_is_the_trace() {
            let guard = span(0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736).attach();
            let context = current().unwrap();
            assert_eq!(
                context.traceparent(),
                "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
            );
            assert_eq!(context.tracestate(), Some("vendor=1"));
            drop(guard);
            assert_eq!(current(), None);
        }

        #[test]
        fn a_span_that_is_none_is_no_trace() {
            let _guard = span(0).attach();
            assert_eq!(current(), None);
        }

        #[tokio::test]
        async fn what_was_said_aloud_counts_before_the_active_span() {
            let _guard = span(1).attach();
            let seen = within(context(None), async { current() }).await;
            assert_eq!(seen.unwrap().traceparent(), PARENT);
        }
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(parent in "\\PC{0,70}", state in "\\PC{0,700}") {
            prop_assert!(parse(&parent).is_err());
            let state = context(Some(&state));
            prop_assert!(state.tracestate().is_none_or(|state| state.len() <= MAX_TRACESTATE));
        }

        #[test]
        fn every_id_is_understood(trace in 1u128.., span in 1u64.., flags in 0u8..) {
            let text = format!("00-{trace:032x}-{span:016x}-{flags:02x}");
            let context = parse(&text).unwrap();
            prop_assert_eq!(context.traceparent(), &text);
        }
    }
}
