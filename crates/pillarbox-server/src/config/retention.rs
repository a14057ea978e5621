//! Reads `[retention]` and `[[retention.namespace]]`.

use std::time::Duration;

use pillarbox_store::retention::{Keep, NEEDED, Retention};

use super::document::Document;
use super::error::Finding;
use super::raw;
use super::resolve::Resolver;
use super::units::{Kept, in_days};

/// Below this, a dedupe key may end before the producer's last retry. So it is a warning.
const SHORT: Duration = Duration::from_secs(24 * 60 * 60);
/// Below this, a mark may end before the last retry or replay of its event.
const SHORT_MARKS: Duration = Duration::from_secs(30 * 24 * 60 * 60);

impl Resolver {
    pub(super) fn retention(&mut self, raw: &raw::Retention, document: &Document<'_>) -> Retention {
        let usual = Retention::usual();
        let age = |kept: Option<Kept>, usual: Option<Duration>| kept.map_or(usual, |kept| kept.0);
        let keep = Keep {
            delivered: age(raw.delivered, usual.keep.delivered),
            dead: age(raw.dead, usual.keep.dead),
        };
        let mut retention = Retention {
            keep,
            sagas: age(raw.sagas, usual.sagas),
            inbox: age(raw.inbox, usual.inbox),
            ..usual
        };
        self.check_keep(raw.delivered, raw.dead, "retention", document);
        for (index, own) in raw.namespace.iter().enumerate() {
            let path = format!("retention.namespace.{index}");
            self.check_keep(own.delivered, own.dead, &path, document);
            let own_keep = Keep {
                delivered: age(own.delivered, keep.delivered),
                dead: age(own.dead, keep.dead),
            };
            let name = &own.name;
            if name.is_empty() || name.contains('*') {
                let message = format!("invalid namespace `{name}` (write one name, without `*`)");
                self.wrong(document.place_of(&format!("{path}.name")), message);
            } else if retention.namespaces.insert(name.clone(), own_keep).is_some() {
                let message = format!("there are two tables for the namespace `{name}` (remove one)");
                self.wrong(document.place_of(&format!("{path}.name")), message);
            }
        }
        let at_once = |keep: &Keep| keep.deletes_at_once();
        if raw.archive.is_some() && (at_once(&keep) || retention.namespaces.values().any(at_once)) {
            let message = "`retention.archive` and `delivered = \"0s\"` exclude each other: what is deleted with its settlement is not \
                           archived (use `delivered = \"1h\"`, or remove `archive`)";
            self.wrong(document.place_of("retention.archive"), message);
        }
        if let Some(age) = retention.inbox.filter(|age| *age < SHORT_MARKS) {
            let message = format!(
                "`retention.inbox` is {}: marks of every consumer end then, and an event that is sent again later is handled \
                 again (use at least 30 days, or longer than each consumer keeps its marks)",
                in_days(age)
            );
            self.warn("retention.inbox", message, document);
        }
        retention
    }

    fn check_keep(
        &mut self,
        delivered: Option<Kept>,
        dead: Option<Kept>,
        path: &str,
        document: &Document<'_>,
    ) {
        if dead == Some(Kept(Some(Duration::ZERO))) {
            let message = format!(
                "`{path}.dead` must be longer than 0s: dead events would be gone before an operator saw them (use \"never\" to keep \
                 them)"
            );
            self.wrong(document.place_of(&format!("{path}.dead")), message);
        }
        let Some(Kept(Some(age))) = delivered else { return };
        if !age.is_zero() && age < SHORT {
            let message = format!(
                "`{path}.delivered` is {}: a dedupe key detects duplicates for only that long after the delivery (use at least \
                 as long as producers retry)",
                in_days(age)
            );
            self.warn(&format!("{path}.delivered"), message, document);
        }
    }

    fn warn(&mut self, path: &str, message: String, document: &Document<'_>) {
        self.warnings.push(Finding::new(document.place_of(path), message));
    }
}

/// Keeps delivered rows of a namespace for this long, if they are kept for longer.
pub(super) fn shorten(retention: &mut Retention, namespace: &str, delivered: Option<Duration>) {
    let Some(shorter) = delivered else { return };
    let mut keep = retention.of(namespace);
    if keep.delivered.is_none_or(|age| age > shorter) {
        keep.delivered = Some(shorter);
        retention.namespaces.insert(namespace.to_owned(), keep);
    }
}

/// What retention means for duplicates, in one line.
pub(crate) fn summary(retention: &Retention) -> String {
    let shown = |age: Option<Duration>| {
        age.map_or_else(|| "for ever".to_owned(), |age| format!("for {}", in_days(age)))
    };
    let keep = retention.keep;
    let delivered = match keep.deletes_at_once() {
        true => format!(
            "deleted at once (those with a dedupe key {})",
            shown(Some(NEEDED))
        ),
        false => format!("kept {}", shown(keep.delivered)),
    };
    let own = match retention.namespaces.len() {
        0 => String::new(),
        count => format!(
            "; {count} namespace{} with retention of {} own",
            if count == 1 { "" } else { "s" },
            if count == 1 { "its" } else { "their" }
        ),
    };
    format!(
        "delivered events are {delivered}, dead ones {}{own}; a dedupe key detects duplicates until its event is deleted",
        shown(keep.dead)
    )
}
