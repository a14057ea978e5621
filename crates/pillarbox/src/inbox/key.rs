//! The key of an event in an inbox.

use uuid::{Uuid, uuid};

use crate::derived_id::derived_id;

/// The namespace of ids that are made of dedupe keys. Never change it: inboxes hold such ids.
const DEDUPE: Uuid = uuid!("0192f0c5-7a1b-5e2e-9d3c-706c6c617262");

/// The key of an event in an inbox: its id, or its dedupe key.
///
/// Prefer the id: every event has one, and it is the same on every attempt and after a replay. The dedupe key also detects
/// two events for one fact: from a producer that enqueued it again after the first row was pruned, or from two
/// producers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Uuid);

impl Key {
    /// By the event's id: the header `pillarbox-id`.
    pub fn event(id: Uuid) -> Self {
        Self(id)
    }

    /// By the event's dedupe key, which is unique with namespace and topic. It is kept as an id that is made of the
    /// three (a version 8 UUID, which no event may have), so that all keys of an inbox look alike.
    pub fn dedupe(namespace: &str, topic: &str, dedupe_key: &str) -> Self {
        // The lengths tell where one ends and the next begins, whatever they hold.
        let name = format!(
            "{} {} {namespace}{topic}{dedupe_key}",
            namespace.len(),
            topic.len()
        );
        Self(derived_id(&DEDUPE, &name))
    }

    /// As the table holds it.
    pub fn id(self) -> Uuid {
        self.0
    }
}

impl From<Uuid> for Key {
    fn from(id: Uuid) -> Self {
        Self::event(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dedupe_key_is_another_in_another_topic_wherever_one_ends() {
        let keys = [
            Key::dedupe("shop", "orders", "1"),
            Key::dedupe("shop", "orders1", ""),
            Key::dedupe("shopo", "rders", "1"),
            Key::dedupe("shop", "orders", "2"),
        ];
        for (i, a) in keys.iter().enumerate() {
            assert!(keys[i + 1..].iter().all(|b| a != b), "{keys:?}");
        }
        assert_eq!(keys[0], Key::dedupe("shop", "orders", "1"));
    }

    #[test]
    fn a_dedupe_key_is_the_same_id_for_ever() {
        let id = Key::dedupe("shop", "orders", "order-42/created").id();
        assert_eq!(id, uuid!("140f2ea9-1b5d-8856-95cd-35993d1d9e88"));
    }
}
